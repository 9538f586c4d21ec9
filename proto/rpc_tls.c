#include "proto/rpc_tls.h"

#include <arpa/inet.h>
#include <netinet/in.h>
#include <openssl/pem.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/fs.h"
#include "proto/rpc_client.h"

enum { MAX_PEM_BYTES = 4 << 20, MAX_TOKEN_BYTES = 4096 };

static const char *from_env(const char *given, const char *name)
{
    const char *value = given ? given : getenv(name);
    return value && value[0] ? value : NULL;
}

/* ---- addresses ----------------------------------------------------------------------------- */

static int fail_address(const char *text, struct error *err)
{
    return error_set(err, ERR_INVALID_ARGUMENT,
                     "server address %.200s: expected host:port, tls://host:port or unix:/path",
                     text);
}

/* Splits "host:port" and "[v6]:port". */
static bool split(const char *text, struct rpc_target *t)
{
    const char *colon = strrchr(text, ':');
    if (!colon || !colon[1] || strlen(colon + 1) > 5 ||
        strspn(colon + 1, "0123456789") != strlen(colon + 1)) {
        return false;
    }
    size_t len = (size_t)(colon - text);
    if (len > 2 && text[0] == '[' && text[len - 1] == ']') {
        text++;
        len -= 2;
    } else if (memchr(text, ':', len)) {
        return false;
    }
    if (len == 0 || len >= sizeof t->host || memchr(text, '/', len)) {
        return false;
    }
    memcpy(t->host, text, len);
    t->host[len] = 0;
    snprintf(t->port, sizeof t->port, "%s", colon + 1);
    return true;
}

int rpc_target_parse(struct rpc_target *out, const char *text, const char *ca_file,
                     struct error *err)
{
    struct in_addr v4;
    struct in6_addr v6;
    *out = (struct rpc_target){0};
    if (strncmp(text, "unix:/", 6) == 0) {
        if (strlen(text) >= sizeof out->core) {
            return fail_address(text, err);
        }
        snprintf(out->core, sizeof out->core, "%s", text);
        return 0;
    }
    if (strncmp(text, "http://", 7) == 0) {
        return error_set(err, ERR_INVALID_ARGUMENT,
                         "server address %.200s: plain text is not spoken; write host:port", text);
    }
    bool tls = strncmp(text, "tls://", 6) == 0;
    if (!split(text + (tls ? 6 : 0), out)) {
        return fail_address(text, err);
    }
    bool loopback = false;
    bool name_of_loopback = strcmp(out->host, "localhost") == 0; /* needs no resolver */
    if (name_of_loopback || inet_pton(AF_INET, out->host, &v4) == 1) {
        loopback = name_of_loopback || ntohl(v4.s_addr) >> 24 == 127;
        snprintf(out->core, sizeof out->core, "ipv4:%s:%s",
                 name_of_loopback ? "127.0.0.1" : out->host, out->port);
    } else if (inet_pton(AF_INET6, out->host, &v6) == 1) {
        loopback = IN6_IS_ADDR_LOOPBACK(&v6);
        inet_ntop(AF_INET6, &v6, out->host, sizeof out->host); /* as core writes a certificate's */
        snprintf(out->core, sizeof out->core, "ipv6:[%s]:%s", out->host, out->port);
    } else {
        snprintf(out->core, sizeof out->core, "dns:%s:%s", out->host, out->port);
    }
    out->tls = tls || !loopback || from_env(ca_file, "TANDEM_CA_FILE");
    return 0;
}

/* ---- files --------------------------------------------------------------------------------- */

bool rpc_config_path(char *out, size_t size, const char *name)
{
    const char *base = getenv("XDG_CONFIG_HOME");
    const char *home = getenv("HOME");
    int n;
    if (base && base[0] == '/') {
        n = snprintf(out, size, "%s/tandem/%s", base, name);
    } else if (home && home[0] == '/') {
        n = snprintf(out, size, "%s/.config/tandem/%s", home, name);
    } else {
        return false;
    }
    return n > 0 && (size_t)n < size;
}

static int load(const char *path, char **file, char **pem, struct error *err)
{
    size_t len;
    if (fs_read_file(path, MAX_PEM_BYTES, pem, &len, err)) {
        return -1;
    }
    *file = strdup(path);
    ASSERT(*file);
    return 0;
}

static int load_ca(struct rpc_trust *t, const char *named, struct error *err)
{
    static const char *const systems[] = {"/etc/ssl/certs/ca-certificates.crt",
                                          "/etc/pki/tls/certs/ca-bundle.crt", "/etc/ssl/cert.pem"};
    char path[4096];
    if (!named && rpc_config_path(path, sizeof path, "ca.pem") && fs_exists(path)) {
        named = path;
    }
    if (named) {
        if (load(named, &t->ca_file, &t->ca_pem, err)) {
            return error_wrap(err, "the server's CA");
        }
        if (rpc_tls_pem_ends_s(t->ca_pem) == 0) {
            return error_set(err, ERR_INVALID_ARGUMENT, "%s: no certificate in PEM", named);
        }
        return 0;
    }
    t->ca_is_systems = true;
    for (size_t i = 0; i < sizeof systems / sizeof *systems; i++) {
        if (access(systems[i], R_OK) == 0) {
            return load(systems[i], &t->ca_file, &t->ca_pem, err);
        }
    }
    return error_set(err, ERR_FAILED_PRECONDITION,
                     "no CA is known to tell the server by: set TANDEM_CA_FILE to the server's "
                     "ca.pem, or put it into ~/.config/tandem");
}

int rpc_trust_load(struct rpc_trust *out, const char *ca_file, const char *cert_file,
                   const char *key_file, struct error *err)
{
    const char *cert = from_env(cert_file, "TANDEM_CERT_FILE");
    const char *key = from_env(key_file, "TANDEM_KEY_FILE");
    *out = (struct rpc_trust){0};
    int r = load_ca(out, from_env(ca_file, "TANDEM_CA_FILE"), err);
    if (r == 0 && !cert != !key) {
        r = error_set(err, ERR_INVALID_ARGUMENT,
                      "a client's certificate needs both TANDEM_CERT_FILE and TANDEM_KEY_FILE");
    }
    if (r == 0 && cert &&
        (load(cert, &out->cert_file, &out->cert_pem, err) ||
         load(key, &out->key_file, &out->key_pem, err))) {
        r = error_wrap(err, "this client's certificate");
    }
    if (r) {
        rpc_trust_free(out);
    }
    return r;
}

void rpc_trust_free(struct rpc_trust *t)
{
    if (t->key_pem) {
        OPENSSL_cleanse(t->key_pem, strlen(t->key_pem));
    }
    free(t->ca_file);
    free(t->ca_pem);
    free(t->cert_file);
    free(t->cert_pem);
    free(t->key_file);
    free(t->key_pem);
    *t = (struct rpc_trust){0};
}

/* ---- where the server is ------------------------------------------------------------------- */

/* The first line of a file, malloc'ed; NULL without an error: there is no such file. */
static int read_line(const char *path, char **out, struct error *err)
{
    size_t len;
    *out = NULL;
    struct error e;
    if (fs_read_file(path, MAX_TOKEN_BYTES, out, &len, &e)) {
        if (e.code == ERR_NOT_FOUND) {
            return 0;
        }
        return error_set(err, e.code, "%s", e.text);
    }
    (*out)[strcspn(*out, "\r\n")] = 0;
    return 0;
}

int rpc_find_server(const char *server_flag, char **target, char **token, struct error *err)
{
    char path[4096];
    const char *env = getenv("TANDEM_SERVER");
    char *found = NULL;
    *target = *token = NULL;
    if (server_flag && server_flag[0]) {
        found = strdup(server_flag);
    } else if (env && env[0]) {
        found = strdup(env);
    } else if (rpc_config_path(path, sizeof path, "server") && read_line(path, &found, err)) {
        return -1;
    }
    if (!found || !found[0]) {
        free(found);
        return error_set(err, ERR_UNAVAILABLE,
                         "no server is known: give --server, set TANDEM_SERVER, or start one with "
                         "tandemd --dev");
    }
    const char *token_file = getenv("TANDEM_TOKEN_FILE");
    bool named = token_file && token_file[0];
    bool wanted = named || strncmp(found, "unix:", 5) != 0;
    if (named) {
        snprintf(path, sizeof path, "%s", token_file);
    }
    if (wanted && (named || rpc_config_path(path, sizeof path, "token")) &&
        read_line(path, token, err)) {
        free(found);
        return -1;
    }
    *target = found;
    return 0;
}
