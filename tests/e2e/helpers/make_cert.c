/* make_cert FOLDER NAME ca|server|client FROM_DAYS UNTIL_DAYS [HOST]...: writes FOLDER/NAME.pem and
 * FOLDER/NAME.key. What is no CA is signed by FOLDER/ca.pem, or by the CA that TANDEM_TEST_CA names
 * ("other" = FOLDER/other.pem). Days count from now and may be negative. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/clock.h"
#include "clients/cli/cert.h"

int main(int argc, char **argv)
{
    char paths[4][512];
    struct error err;
    struct cert ca = {0}, c;
    if (argc < 6) {
        fprintf(stderr, "make_cert FOLDER NAME ca|server|client FROM_DAYS UNTIL_DAYS [HOST]...\n");
        return 2;
    }
    const char *by = getenv("TANDEM_TEST_CA");
    int64_t now = clock_wall_us() / 1000000;
    struct cert_wish wish = {.kind = strcmp(argv[3], "ca") == 0       ? CERT_CA
                                     : strcmp(argv[3], "server") == 0 ? CERT_SERVER
                                                                      : CERT_CLIENT,
                             .name = argv[2],
                             .hosts = (const char *const *)argv + 6,
                             .num_hosts = argc - 6,
                             .from_s = now + strtol(argv[4], NULL, 10) * 86400,
                             .until_s = now + strtol(argv[5], NULL, 10) * 86400};
    snprintf(paths[0], sizeof paths[0], "%s/%s.pem", argv[1], argv[2]);
    snprintf(paths[1], sizeof paths[1], "%s/%s.key", argv[1], argv[2]);
    snprintf(paths[2], sizeof paths[2], "%s/%s.pem", argv[1], by ? by : "ca");
    snprintf(paths[3], sizeof paths[3], "%s/%s.key", argv[1], by ? by : "ca");
    bool self = wish.kind == CERT_CA;
    if ((!self && cert_read(&ca, paths[2], paths[3], &err)) ||
        cert_make(&c, &wish, self ? NULL : &ca, &err) || cert_write(&c, paths[0], paths[1], &err)) {
        fprintf(stderr, "make_cert: %s\n", err.text);
        return 1;
    }
    cert_free(&c);
    cert_free(&ca);
    return 0;
}
