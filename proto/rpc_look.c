/* rpc_tls_look: a handshake of our own, because core says no more of a failed one than that it
 * failed. */
#include <arpa/inet.h>
#include <errno.h>
#include <netdb.h>
#include <netinet/in.h>
#include <openssl/err.h>
#include <openssl/pem.h>
#include <openssl/ssl.h>
#include <openssl/x509v3.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/time.h>
#include <time.h>
#include <unistd.h>

#include "base/buf.h"
#include "proto/rpc_tls.h"

enum { PATIENCE_S = 5 };

/* ---- certificates as text ------------------------------------------------------------------ */

static int64_t unix_seconds(const ASN1_TIME *t)
{
    struct tm tm;
    return ASN1_TIME_to_tm(t, &tm) ? (int64_t)timegm(&tm) : 0;
}

static void date_text(const ASN1_TIME *t, char out[32])
{
    struct tm tm = {0};
    if (!ASN1_TIME_to_tm(t, &tm) || !strftime(out, 32, "%Y-%m-%d %H:%M UTC", &tm)) {
        snprintf(out, 32, "?");
    }
}

static STACK_OF(X509) * read_all(const char *pem)
{
    STACK_OF(X509) *all = sk_X509_new_null();
    BIO *bio = BIO_new_mem_buf(pem, -1);
    X509 *x;
    while ((x = PEM_read_bio_X509(bio, NULL, NULL, NULL))) {
        sk_X509_push(all, x);
    }
    BIO_free(bio);
    ERR_clear_error();
    return all;
}

int64_t rpc_tls_pem_ends_s(const char *pem)
{
    STACK_OF(X509) *all = read_all(pem);
    int64_t s = sk_X509_num(all) > 0 ? unix_seconds(X509_get0_notAfter(sk_X509_value(all, 0))) : 0;
    sk_X509_pop_free(all, X509_free);
    return s;
}

static void name_text(const X509_NAME *name, char *out, size_t size)
{
    BIO *bio = BIO_new(BIO_s_mem());
    X509_NAME_print_ex(bio, name, 0, XN_FLAG_ONELINE & ~ASN1_STRFLGS_ESC_MSB);
    int n = BIO_read(bio, out, (int)size - 1);
    out[n > 0 ? n : 0] = 0;
    BIO_free(bio);
}

/* Letters, digits and what else stands in names; the rest comes from a stranger. */
static void add_name(struct buf *b, const unsigned char *data, int len)
{
    buf_puts(b, b->len ? ", " : "");
    for (int i = 0; i < len && i < 128; i++) {
        buf_putc(b, data[i] > ' ' && data[i] < 0x7f ? (char)data[i] : '?');
    }
}

static void names_text(X509 *x, char *out, size_t size)
{
    struct buf b = {0};
    GENERAL_NAMES *names = X509_get_ext_d2i(x, NID_subject_alt_name, NULL, NULL);
    for (int i = 0; i < sk_GENERAL_NAME_num(names) && i < 16; i++) {
        const GENERAL_NAME *n = sk_GENERAL_NAME_value(names, i);
        char text[INET6_ADDRSTRLEN] = "";
        if (n->type == GEN_DNS) {
            add_name(&b, ASN1_STRING_get0_data(n->d.dNSName), ASN1_STRING_length(n->d.dNSName));
        } else if (n->type == GEN_IPADD) {
            int len = ASN1_STRING_length(n->d.iPAddress);
            const unsigned char *bytes = ASN1_STRING_get0_data(n->d.iPAddress);
            if (len == 4 || len == 16) {
                struct sockaddr_in v4 = {.sin_family = AF_INET};
                struct sockaddr_in6 v6 = {.sin6_family = AF_INET6};
                memcpy(len == 4 ? (void *)&v4.sin_addr : (void *)&v6.sin6_addr, bytes, (size_t)len);
                getnameinfo(len == 4 ? (struct sockaddr *)&v4 : (struct sockaddr *)&v6,
                            len == 4 ? sizeof v4 : sizeof v6, text, sizeof text, NULL, 0,
                            NI_NUMERICHOST);
            }
            add_name(&b, (const unsigned char *)text, (int)strlen(text));
        }
    }
    snprintf(out, size, "%s", b.len ? b.data : "no name");
    buf_free(&b);
    GENERAL_NAMES_free(names);
}

static void view_of(SSL *ssl, X509 *x, struct rpc_view *out)
{
    snprintf(out->version, sizeof out->version, "%s", SSL_get_version(ssl));
    name_text(X509_get_subject_name(x), out->subject, sizeof out->subject);
    name_text(X509_get_issuer_name(x), out->issuer, sizeof out->issuer);
    names_text(x, out->names, sizeof out->names);
    out->ends_s = unix_seconds(X509_get0_notAfter(x));
}

/* ---- why not ------------------------------------------------------------------------------- */

static int fail_verify(long code, X509 *x, const struct rpc_target *target,
                       const struct rpc_trust *trust, const struct rpc_view *view,
                       struct error *err)
{
    char date[32];
    switch (code) {
    case X509_V_ERR_CERT_HAS_EXPIRED:
        date_text(X509_get0_notAfter(x), date);
        return error_set(err, ERR_FAILED_PRECONDITION, "the server's certificate expired at %s",
                         date);
    case X509_V_ERR_CERT_NOT_YET_VALID:
        date_text(X509_get0_notBefore(x), date);
        return error_set(err, ERR_FAILED_PRECONDITION,
                         "the server's certificate is valid only from %s on; is a clock wrong?",
                         date);
    case X509_V_ERR_HOSTNAME_MISMATCH:
    case X509_V_ERR_IP_ADDRESS_MISMATCH:
        return error_set(err, ERR_FAILED_PRECONDITION,
                         "the server's certificate is not for %s but for %s", target->host,
                         view->names);
    case X509_V_ERR_UNABLE_TO_GET_ISSUER_CERT_LOCALLY:
    case X509_V_ERR_UNABLE_TO_GET_ISSUER_CERT:
    case X509_V_ERR_SELF_SIGNED_CERT_IN_CHAIN:
    case X509_V_ERR_DEPTH_ZERO_SELF_SIGNED_CERT:
    case X509_V_ERR_UNABLE_TO_VERIFY_LEAF_SIGNATURE:
    case X509_V_ERR_CERT_SIGNATURE_FAILURE:
        if (trust->ca_is_systems) {
            return error_set(err, ERR_FAILED_PRECONDITION,
                             "the server's certificate is not signed by a CA that this system "
                             "trusts; set TANDEM_CA_FILE to the server's ca.pem, or put that into "
                             "~/.config/tandem");
        }
        return error_set(err, ERR_FAILED_PRECONDITION,
                         "the server's certificate is not signed by the CA in %s", trust->ca_file);
    default:
        return error_set(err, ERR_FAILED_PRECONDITION,
                         "the server's certificate can't be trusted: %s",
                         X509_verify_cert_error_string(code));
    }
}

/* n: what SSL_connect or SSL_read has returned. */
static int fail_ssl(const SSL *ssl, int n, const struct rpc_trust *trust, struct error *err)
{
    int what = SSL_get_error(ssl, n);
    if (what == SSL_ERROR_WANT_READ || what == SSL_ERROR_WANT_WRITE) {
        return error_set(err, ERR_DEADLINE_EXCEEDED,
                         "the server didn't go on with the TLS handshake within %d s", PATIENCE_S);
    }
    unsigned long e = ERR_peek_error();
    int reason = ERR_GET_LIB(e) == ERR_LIB_SSL ? ERR_GET_REASON(e) : 0;
    const char *words = ERR_reason_error_string(e);
    switch (reason) {
    case SSL_R_WRONG_VERSION_NUMBER:
    case SSL_R_HTTP_REQUEST:
    case SSL_R_PACKET_LENGTH_TOO_LONG:
        return error_set(err, ERR_FAILED_PRECONDITION,
                         "the server speaks plain text there, not TLS; nothing was sent to it");
    case SSL_R_TLSV13_ALERT_CERTIFICATE_REQUIRED:
        return error_set(err, ERR_FAILED_PRECONDITION,
                         "the server wants a client's certificate: set TANDEM_CERT_FILE and "
                         "TANDEM_KEY_FILE");
    case SSL_R_TLSV1_ALERT_UNKNOWN_CA:
    case SSL_R_SSLV3_ALERT_BAD_CERTIFICATE:
    case SSL_R_SSLV3_ALERT_CERTIFICATE_EXPIRED:
    case SSL_R_SSLV3_ALERT_CERTIFICATE_UNKNOWN:
    case SSL_R_SSLV3_ALERT_UNSUPPORTED_CERTIFICATE:
        return error_set(err, ERR_FAILED_PRECONDITION,
                         "the server does not accept this client's certificate%s%s (%s)",
                         trust->cert_file ? " " : "", trust->cert_file ? trust->cert_file : "",
                         words);
    default:
        return error_set(err, ERR_FAILED_PRECONDITION, "the TLS handshake failed: %s",
                         words ? words : "the server closed the connection");
    }
}

/* ---- the look ------------------------------------------------------------------------------ */

static int dial(const struct rpc_target *t, struct error *err)
{
    const struct timeval patience = {.tv_sec = PATIENCE_S};
    const struct addrinfo hints = {.ai_socktype = SOCK_STREAM};
    struct addrinfo *found;
    int e = getaddrinfo(t->host, t->port, &hints, &found);
    if (e) {
        return error_set(err, ERR_UNAVAILABLE, "host %s: %s", t->host, gai_strerror(e));
    }
    int fd = -1, errnum = 0;
    for (struct addrinfo *a = found; a && fd < 0; a = a->ai_next) {
        fd = socket(a->ai_family, SOCK_STREAM | SOCK_CLOEXEC, 0);
        setsockopt(fd, SOL_SOCKET, SO_RCVTIMEO, &patience, sizeof patience);
        setsockopt(fd, SOL_SOCKET, SO_SNDTIMEO, &patience, sizeof patience);
        if (fd >= 0 && connect(fd, a->ai_addr, a->ai_addrlen) != 0) {
            errnum = errno == EINPROGRESS ? ETIMEDOUT : errno;
            close(fd);
            fd = -1;
        }
    }
    freeaddrinfo(found);
    if (fd < 0) {
        error_set(err, ERR_UNAVAILABLE, "%s", errnum ? strerror(errnum) : "no address");
    }
    return fd;
}

static int use_own(SSL_CTX *ctx, const struct rpc_trust *trust, struct error *err)
{
    STACK_OF(X509) *chain = read_all(trust->cert_pem);
    BIO *bio = BIO_new_mem_buf(trust->key_pem, -1);
    EVP_PKEY *key = PEM_read_bio_PrivateKey(bio, NULL, NULL, (void *)(uintptr_t) "");
    int r = 0;
    if (sk_X509_num(chain) < 1 || !key ||
        SSL_CTX_use_certificate(ctx, sk_X509_value(chain, 0)) != 1 ||
        SSL_CTX_use_PrivateKey(ctx, key) != 1) {
        r = error_set(err, ERR_INVALID_ARGUMENT, "%s and %s are not a certificate and its key",
                      trust->cert_file, trust->key_file);
    }
    for (int i = 1; r == 0 && i < sk_X509_num(chain); i++) {
        SSL_CTX_add1_chain_cert(ctx, sk_X509_value(chain, i));
    }
    EVP_PKEY_free(key);
    BIO_free(bio);
    sk_X509_pop_free(chain, X509_free);
    return r;
}

static int set_up(SSL_CTX *ctx, const struct rpc_trust *trust, struct error *err)
{
    static const unsigned char h2[] = {2, 'h', '2'};
    STACK_OF(X509) *cas = read_all(trust->ca_pem);
    for (int i = 0; i < sk_X509_num(cas); i++) {
        X509_STORE_add_cert(SSL_CTX_get_cert_store(ctx), sk_X509_value(cas, i));
    }
    sk_X509_pop_free(cas, X509_free);
    SSL_CTX_set_verify(ctx, SSL_VERIFY_PEER, NULL);
    SSL_CTX_set_min_proto_version(ctx, TLS1_2_VERSION);
    ASSERT(SSL_CTX_set_alpn_protos(ctx, h2, sizeof h2) == 0);
    return trust->cert_pem ? use_own(ctx, trust, err) : 0;
}

/* The first certificate that comes, also when it isn't trusted: a failed handshake forgets it. */
struct seen {
    X509 *leaf; /* owned */
    struct rpc_view *view;
};

static int on_verify(int ok, X509_STORE_CTX *store)
{
    SSL *ssl = X509_STORE_CTX_get_ex_data(store, SSL_get_ex_data_X509_STORE_CTX_idx());
    struct seen *seen = SSL_get_app_data(ssl);
    X509 *leaf = X509_STORE_CTX_get0_cert(store);
    if (!seen->leaf && leaf && X509_up_ref(leaf)) {
        seen->leaf = leaf;
        view_of(ssl, leaf, seen->view);
    }
    return ok;
}

static int shake(SSL *ssl, const struct rpc_target *target, const struct rpc_trust *trust,
                 struct rpc_view *out, struct error *err)
{
    struct seen seen = {.view = out};
    struct in6_addr address;
    char byte;
    bool is_address = inet_pton(AF_INET, target->host, &address) == 1 ||
                      inet_pton(AF_INET6, target->host, &address) == 1;
    if (is_address) {
        X509_VERIFY_PARAM_set1_ip_asc(SSL_get0_param(ssl), target->host);
    } else {
        SSL_set1_host(ssl, target->host);
        SSL_set_tlsext_host_name(ssl, target->host);
    }
    SSL_set_app_data(ssl, &seen);
    SSL_set_verify(ssl, SSL_VERIFY_PEER, on_verify);
    ERR_clear_error();
    int n = SSL_connect(ssl), r = 0;
    long code = SSL_get_verify_result(ssl);
    out->trusted = code == X509_V_OK && (n == 1 || seen.leaf);
    if (n == 1) {
        view_of(ssl, SSL_get0_peer_certificate(ssl), out);
        /* A server of TLS 1.3 says only now what it thinks of the client. */
        n = SSL_read(ssl, &byte, 1);
        r = n > 0 ? 0 : fail_ssl(ssl, n, trust, err);
    } else if (code != X509_V_OK && seen.leaf) {
        r = fail_verify(code, seen.leaf, target, trust, out, err);
    } else {
        r = fail_ssl(ssl, n, trust, err);
    }
    X509_free(seen.leaf);
    return r;
}

int rpc_tls_look(const struct rpc_target *target, const struct rpc_trust *trust,
                 struct rpc_view *out, struct error *err)
{
    *out = (struct rpc_view){0};
    int fd = dial(target, err);
    if (fd < 0) {
        return -1;
    }
    SSL_CTX *ctx = SSL_CTX_new(TLS_client_method());
    ASSERT(ctx);
    int r = set_up(ctx, trust, err);
    SSL *ssl = r ? NULL : SSL_new(ctx);
    if (ssl) {
        SSL_set_fd(ssl, fd);
        r = shake(ssl, target, trust, out, err);
    }
    ERR_clear_error();
    SSL_free(ssl);
    SSL_CTX_free(ctx);
    close(fd);
    return r;
}
