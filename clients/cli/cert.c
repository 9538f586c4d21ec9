#include "clients/cli/cert.h"

#include <arpa/inet.h>
#include <openssl/bn.h>
#include <openssl/ec.h>
#include <openssl/err.h>
#include <openssl/pem.h>
#include <openssl/rand.h>
#include <openssl/x509v3.h>
#include <stdlib.h>
#include <string.h>

#include "base/buf.h"
#include "base/fs.h"

enum { MAX_PEM_BYTES = 1 << 20 };

static int fail_ssl(struct error *err, const char *what)
{
    const char *reason = ERR_reason_error_string(ERR_peek_last_error());
    ERR_clear_error();
    return error_set(err, ERR_INTERNAL, "%s%s%s", what, reason ? ": " : "", reason ? reason : "");
}

/* ---- making -------------------------------------------------------------------------------- */

static bool set_serial(X509 *x)
{
    unsigned char bytes[16];
    if (RAND_bytes(bytes, sizeof bytes) != 1) {
        return false;
    }
    bytes[0] = (bytes[0] & 0x7f) | 0x40; /* positive, and always as long */
    BIGNUM *n = BN_bin2bn(bytes, sizeof bytes, NULL);
    bool ok = n && BN_to_ASN1_INTEGER(n, X509_get_serialNumber(x));
    BN_free(n);
    return ok;
}

static bool add_ext(X509 *x, X509 *issuer, int nid, const char *value)
{
    X509V3_CTX ctx;
    X509V3_set_ctx_nodb(&ctx);
    X509V3_set_ctx(&ctx, issuer, x, NULL, NULL, 0);
    X509_EXTENSION *e = X509V3_EXT_conf_nid(NULL, &ctx, nid, value);
    bool ok = e && X509_add_ext(x, e, -1) == 1;
    X509_EXTENSION_free(e);
    return ok;
}

static bool add_hosts(X509 *x, const struct cert_wish *wish)
{
    GENERAL_NAMES *names = sk_GENERAL_NAME_new_null();
    bool ok = names;
    for (int i = 0; ok && i < wish->num_hosts; i++) {
        GENERAL_NAME *n = GENERAL_NAME_new();
        ASN1_OCTET_STRING *ip = a2i_IPADDRESS(wish->hosts[i]);
        ASN1_IA5STRING *dns = ip ? NULL : ASN1_IA5STRING_new();
        ok = n && (ip || (dns && ASN1_STRING_set(dns, wish->hosts[i], -1) == 1));
        if (ok) {
            GENERAL_NAME_set0_value(n, ip ? GEN_IPADD : GEN_DNS, ip ? (void *)ip : (void *)dns);
            ok = sk_GENERAL_NAME_push(names, n) > 0;
        }
    }
    ok = ok && X509_add1_ext_i2d(x, NID_subject_alt_name, names, 0, 0) == 1;
    GENERAL_NAMES_free(names);
    ERR_clear_error(); /* a2i_IPADDRESS has said that a name is no address */
    return ok;
}

static bool add_exts(X509 *x, X509 *issuer, const struct cert_wish *wish)
{
    bool ca = wish->kind == CERT_CA;
    const char *use = wish->kind == CERT_SERVER ? "serverAuth" : "clientAuth";
    return add_ext(x, issuer, NID_basic_constraints,
                   ca ? "critical,CA:TRUE,pathlen:0" : "critical,CA:FALSE") &&
           add_ext(x, issuer, NID_key_usage,
                   ca ? "critical,keyCertSign,cRLSign" : "critical,digitalSignature") &&
           add_ext(x, issuer, NID_subject_key_identifier, "hash") &&
           add_ext(x, issuer, NID_authority_key_identifier, "keyid:always") &&
           (ca || add_ext(x, issuer, NID_ext_key_usage, use)) &&
           (wish->num_hosts == 0 || add_hosts(x, wish));
}

static bool set_name(X509 *x, const char *text)
{
    return X509_NAME_add_entry_by_NID(X509_get_subject_name(x), NID_commonName, MBSTRING_UTF8,
                                      (const unsigned char *)text, -1, -1, 0) == 1;
}

int cert_make(struct cert *out, const struct cert_wish *wish, const struct cert *issuer,
              struct error *err)
{
    struct cert c = {.x509 = X509_new(), .key = EVP_EC_gen("P-256")};
    X509 *x = c.x509;
    bool ok = x && c.key && X509_set_version(x, X509_VERSION_3) == 1 && set_serial(x) &&
              ASN1_TIME_set(X509_getm_notBefore(x), (time_t)wish->from_s) &&
              ASN1_TIME_set(X509_getm_notAfter(x), (time_t)wish->until_s) &&
              X509_set_pubkey(x, c.key) == 1 && set_name(x, wish->name);
    X509 *by = issuer ? issuer->x509 : x;
    ok = ok && X509_set_issuer_name(x, X509_get_subject_name(by)) == 1 && add_exts(x, by, wish) &&
         X509_sign(x, issuer ? issuer->key : c.key, EVP_sha256()) > 0;
    if (!ok) {
        cert_free(&c);
        return fail_ssl(err, "make a certificate");
    }
    *out = c;
    return 0;
}

void cert_free(struct cert *c)
{
    X509_free(c->x509);
    EVP_PKEY_free(c->key);
    *c = (struct cert){0};
}

/* ---- files --------------------------------------------------------------------------------- */

/* Never asks at a terminal. */
static int no_passphrase(char *buf, int size, int rwflag, void *ctx)
{
    (void)buf, (void)size, (void)rwflag, (void)ctx;
    return 0;
}

static BIO *open_pem(const char *path, char **text, struct error *err)
{
    size_t len;
    if (fs_read_file(path, MAX_PEM_BYTES, text, &len, err)) {
        return NULL;
    }
    BIO *bio = BIO_new_mem_buf(*text, (int)len);
    ASSERT(bio);
    return bio;
}

static void close_pem(BIO *bio, char *text)
{
    OPENSSL_cleanse(text, strlen(text));
    free(text);
    BIO_free(bio);
    ERR_clear_error();
}

int cert_read(struct cert *out, const char *cert_path, const char *key_path, struct error *err)
{
    struct cert c = {0};
    char *text;
    BIO *bio = open_pem(cert_path, &text, err);
    if (!bio) {
        return -1;
    }
    c.x509 = PEM_read_bio_X509(bio, NULL, no_passphrase, NULL);
    close_pem(bio, text);
    if (!c.x509) {
        return error_set(err, ERR_INVALID_ARGUMENT, "%s: no certificate in PEM", cert_path);
    }
    bio = open_pem(key_path, &text, err);
    if (!bio) {
        cert_free(&c);
        return -1;
    }
    c.key = PEM_read_bio_PrivateKey(bio, NULL, no_passphrase, NULL);
    close_pem(bio, text);
    if (!c.key || X509_check_private_key(c.x509, c.key) != 1) {
        cert_free(&c);
        ERR_clear_error();
        return error_set(err, ERR_INVALID_ARGUMENT, "%s: not the key of %s", key_path, cert_path);
    }
    *out = c;
    return 0;
}

static int write_bio(BIO *bio, const char *path, unsigned mode, struct error *err)
{
    char *data;
    long len = BIO_get_mem_data(bio, &data);
    int r = fs_write_atomic(path, data, (size_t)len, mode, err);
    OPENSSL_cleanse(data, (size_t)len);
    return r;
}

int cert_write(const struct cert *c, const char *cert_path, const char *key_path, struct error *err)
{
    BIO *key = BIO_new(BIO_s_mem()), *x509 = BIO_new(BIO_s_mem());
    int r;
    if (!key || !x509 || PEM_write_bio_X509(x509, c->x509) != 1 ||
        PEM_write_bio_PKCS8PrivateKey(key, c->key, NULL, NULL, 0, NULL, NULL) != 1) {
        r = fail_ssl(err, "write a certificate");
    } else {
        r = write_bio(key, key_path, 0600, err) || write_bio(x509, cert_path, 0644, err) ? -1 : 0;
    }
    BIO_free(key);
    BIO_free(x509);
    return r;
}

int cert_hosts(const struct cert *c, char **out, int max)
{
    int num = 0;
    GENERAL_NAMES *names = X509_get_ext_d2i(c->x509, NID_subject_alt_name, NULL, NULL);
    for (int i = 0; i < sk_GENERAL_NAME_num(names) && num < max; i++) {
        const GENERAL_NAME *n = sk_GENERAL_NAME_value(names, i);
        char text[INET6_ADDRSTRLEN] = "";
        if (n->type == GEN_DNS) {
            out[num++] = strndup((const char *)ASN1_STRING_get0_data(n->d.dNSName),
                                 (size_t)ASN1_STRING_length(n->d.dNSName));
        } else if (n->type == GEN_IPADD) {
            int family = ASN1_STRING_length(n->d.iPAddress) == 4 ? AF_INET : AF_INET6;
            inet_ntop(family, ASN1_STRING_get0_data(n->d.iPAddress), text, sizeof text);
            out[num++] = strdup(text);
        }
    }
    GENERAL_NAMES_free(names);
    return num;
}
