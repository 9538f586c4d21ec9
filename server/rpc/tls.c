#include "server/rpc/tls.h"

#include <errno.h>
#include <openssl/err.h>
#include <openssl/pem.h>
#include <openssl/ssl.h>
#include <openssl/x509.h>
#include <pthread.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

#include "base/fs.h"

enum { MAX_PEM_BYTES = 1 << 20, NUM_FILES = 3 };

struct stamp {
    dev_t device;
    ino_t inode;
    off_t size;
    struct timespec changed;
};

struct tls {
    char *paths[NUM_FILES]; /* owned: certificate, key, CA of clients (may be NULL) */
    bool require_client_cert;
    pthread_mutex_t lock; /* guards what follows */
    SSL_CTX *ctx;         /* owned */
    int64_t expires_s;
    struct stamp stamps[NUM_FILES];
};

/* ---- reading ------------------------------------------------------------------------------- */

/* What OpenSSL says of the last failure, in front of it the file. */
static int fail_ssl(struct error *err, const char *path, const char *what)
{
    const char *reason = ERR_reason_error_string(ERR_peek_last_error());
    ERR_clear_error();
    return error_set(err, ERR_INVALID_ARGUMENT, "%s: %s%s%s", path, what, reason ? ": " : "",
                     reason ? reason : "");
}

/* Never asks at a terminal. */
static int no_passphrase(char *buf, int size, int rwflag, void *ctx)
{
    (void)buf, (void)size, (void)rwflag, (void)ctx;
    return 0;
}

static int open_pem(const char *path, BIO **out, char **text, struct error *err)
{
    size_t len;
    if (fs_read_file(path, MAX_PEM_BYTES, text, &len, err)) {
        return -1;
    }
    *out = BIO_new_mem_buf(*text, (int)len);
    ASSERT(*out);
    return 0;
}

static void close_pem(BIO *bio, char *text)
{
    OPENSSL_cleanse(text, strlen(text));
    BIO_free(bio);
    free(text);
    ERR_clear_error();
}

static int64_t unix_seconds(const ASN1_TIME *t)
{
    struct tm tm;
    return ASN1_TIME_to_tm(t, &tm) ? (int64_t)timegm(&tm) : 0;
}

static int use_certificate(SSL_CTX *ctx, const char *path, int64_t *expires_s, struct error *err)
{
    BIO *bio;
    char *text;
    if (open_pem(path, &bio, &text, err)) {
        return -1;
    }
    int r = -1;
    X509 *leaf = PEM_read_bio_X509(bio, NULL, no_passphrase, NULL);
    if (!leaf) {
        fail_ssl(err, path, "no certificate in PEM");
    } else if (X509_cmp_current_time(X509_get0_notAfter(leaf)) < 0) {
        error_set(err, ERR_INVALID_ARGUMENT,
                  "%s: the certificate has expired; tandem admin init --renew makes a new one",
                  path);
    } else if (SSL_CTX_use_certificate(ctx, leaf) != 1) {
        fail_ssl(err, path, "the certificate can't be used");
    } else {
        *expires_s = unix_seconds(X509_get0_notAfter(leaf));
        r = 0;
        X509 *next;
        while (r == 0 && (next = PEM_read_bio_X509(bio, NULL, no_passphrase, NULL))) {
            if (SSL_CTX_add0_chain_cert(ctx, next) != 1) {
                X509_free(next);
                r = fail_ssl(err, path, "a certificate of the chain can't be used");
            }
        }
    }
    X509_free(leaf);
    close_pem(bio, text);
    return r;
}

static int use_key(SSL_CTX *ctx, const char *path, const char *cert_path, struct error *err)
{
    struct stat st;
    BIO *bio;
    char *text;
    if (stat(path, &st) != 0) {
        return error_errno(err, errno, "%s", path);
    }
    if ((st.st_mode & 077) != 0) {
        return error_set(err, ERR_PERMISSION_DENIED,
                         "%s: others than its owner may touch the key (mode %04o); chmod 600 it",
                         path, (unsigned)st.st_mode & 07777);
    }
    if (open_pem(path, &bio, &text, err)) {
        return -1;
    }
    EVP_PKEY *key = PEM_read_bio_PrivateKey(bio, NULL, no_passphrase, NULL);
    int r = 0;
    if (!key) {
        r = fail_ssl(err, path, "no private key in PEM without a passphrase");
    } else if (SSL_CTX_use_PrivateKey(ctx, key) != 1 || SSL_CTX_check_private_key(ctx) != 1) {
        ERR_clear_error();
        r = error_set(err, ERR_INVALID_ARGUMENT, "%s: not the key of the certificate in %s", path,
                      cert_path);
    }
    EVP_PKEY_free(key);
    close_pem(bio, text);
    return r;
}

static int use_client_ca(SSL_CTX *ctx, const char *path, bool required, struct error *err)
{
    BIO *bio;
    char *text;
    if (open_pem(path, &bio, &text, err)) {
        return -1;
    }
    STACK_OF(X509_NAME) *names = sk_X509_NAME_new_null();
    int num = 0, r = 0;
    X509 *ca;
    while (r == 0 && (ca = PEM_read_bio_X509(bio, NULL, no_passphrase, NULL))) {
        X509_NAME *name = X509_NAME_dup(X509_get_subject_name(ca));
        if (!name || !sk_X509_NAME_push(names, name) ||
            X509_STORE_add_cert(SSL_CTX_get_cert_store(ctx), ca) != 1) {
            r = fail_ssl(err, path, "a certificate can't be used");
        }
        num++;
        X509_free(ca);
    }
    if (r == 0 && num == 0) {
        r = fail_ssl(err, path, "no certificate in PEM");
    }
    SSL_CTX_set_client_CA_list(ctx, names);
    SSL_CTX_set_verify(ctx, SSL_VERIFY_PEER | (required ? SSL_VERIFY_FAIL_IF_NO_PEER_CERT : 0),
                       NULL);
    close_pem(bio, text);
    return r;
}

/* ---- the context --------------------------------------------------------------------------- */

static int choose_h2(SSL *ssl, const unsigned char **out, unsigned char *out_len,
                     const unsigned char *in, unsigned in_len, void *arg)
{
    (void)ssl, (void)arg;
    for (unsigned i = 0; i < in_len; i += 1u + in[i]) {
        if (in[i] == 2 && i + 2 < in_len && memcmp(in + i + 1, "h2", 2) == 0) {
            *out = in + i + 1;
            *out_len = 2;
            return SSL_TLSEXT_ERR_OK;
        }
    }
    return SSL_TLSEXT_ERR_ALERT_FATAL;
}

static SSL_CTX *new_context(void)
{
    SSL_CTX *ctx = SSL_CTX_new(TLS_server_method());
    ASSERT(ctx);
    SSL_CTX_set_options(ctx, SSL_OP_NO_RENEGOTIATION | SSL_OP_NO_COMPRESSION | SSL_OP_NO_TICKET |
                                 SSL_OP_CIPHER_SERVER_PREFERENCE);
    SSL_CTX_set_mode(ctx, SSL_MODE_ENABLE_PARTIAL_WRITE | SSL_MODE_ACCEPT_MOVING_WRITE_BUFFER |
                              SSL_MODE_RELEASE_BUFFERS);
    ASSERT(SSL_CTX_set_min_proto_version(ctx, TLS1_2_VERSION) == 1);
    ASSERT(SSL_CTX_set_cipher_list(ctx, "ECDHE+AESGCM:ECDHE+CHACHA20") == 1);
    SSL_CTX_set_session_cache_mode(ctx, SSL_SESS_CACHE_OFF);
    SSL_CTX_set_num_tickets(ctx, 0);
    SSL_CTX_set_alpn_select_cb(ctx, choose_h2, NULL);
    return ctx;
}

static bool stamp_of(const char *path, struct stamp *out)
{
    struct stat st;
    if (!path || stat(path, &st) != 0) {
        memset(out, 0, sizeof *out);
        return false;
    }
    *out = (struct stamp){st.st_dev, st.st_ino, st.st_size, st.st_mtim};
    return true;
}

static bool same_stamp(const struct stamp *a, const struct stamp *b)
{
    return a->device == b->device && a->inode == b->inode && a->size == b->size &&
           a->changed.tv_sec == b->changed.tv_sec && a->changed.tv_nsec == b->changed.tv_nsec;
}

int tls_reload(struct tls *t, struct error *err)
{
    struct stamp stamps[NUM_FILES];
    int64_t expires_s = 0;
    /* Before the files are read: a change in between is then seen as one. */
    for (int i = 0; i < NUM_FILES; i++) {
        stamp_of(t->paths[i], &stamps[i]);
    }
    SSL_CTX *ctx = new_context();
    int r = use_certificate(ctx, t->paths[0], &expires_s, err) ||
                    use_key(ctx, t->paths[1], t->paths[0], err) ||
                    (t->paths[2] && use_client_ca(ctx, t->paths[2], t->require_client_cert, err))
                ? -1
                : 0;
    pthread_mutex_lock(&t->lock);
    /* What can't be used is complained about once, not at each look. */
    memcpy(t->stamps, stamps, sizeof stamps);
    if (r == 0) {
        SSL_CTX *old = t->ctx;
        t->ctx = ctx;
        t->expires_s = expires_s;
        ctx = old;
    }
    pthread_mutex_unlock(&t->lock);
    SSL_CTX_free(ctx);
    return r;
}

bool tls_is_stale(struct tls *t)
{
    struct stamp now[NUM_FILES];
    for (int i = 0; i < NUM_FILES; i++) {
        stamp_of(t->paths[i], &now[i]);
    }
    bool stale = false;
    pthread_mutex_lock(&t->lock);
    for (int i = 0; i < NUM_FILES; i++) {
        stale = stale || !same_stamp(&now[i], &t->stamps[i]);
    }
    pthread_mutex_unlock(&t->lock);
    return stale;
}

int tls_new(struct tls **out, const struct tls_files *files, struct error *err)
{
    struct tls *t = calloc(1, sizeof *t);
    if (!t) {
        return error_set(err, ERR_RESOURCE_EXHAUSTED, "out of memory");
    }
    pthread_mutex_init(&t->lock, NULL);
    t->paths[0] = strdup(files->cert_file);
    t->paths[1] = strdup(files->key_file);
    t->paths[2] = files->client_ca_file ? strdup(files->client_ca_file) : NULL;
    t->require_client_cert = files->require_client_cert;
    ASSERT(t->paths[0] && t->paths[1]);
    if (tls_reload(t, err)) {
        tls_free(t);
        return -1;
    }
    *out = t;
    return 0;
}

void tls_free(struct tls *t)
{
    if (!t) {
        return;
    }
    for (int i = 0; i < NUM_FILES; i++) {
        free(t->paths[i]);
    }
    SSL_CTX_free(t->ctx);
    pthread_mutex_destroy(&t->lock);
    free(t);
}

SSL *tls_session(struct tls *t)
{
    pthread_mutex_lock(&t->lock);
    SSL *ssl = SSL_new(t->ctx); /* holds the context */
    pthread_mutex_unlock(&t->lock);
    if (ssl) {
        SSL_set_accept_state(ssl);
    }
    return ssl;
}

int64_t tls_expires_s(struct tls *t)
{
    pthread_mutex_lock(&t->lock);
    int64_t s = t->expires_s;
    pthread_mutex_unlock(&t->lock);
    return s;
}
