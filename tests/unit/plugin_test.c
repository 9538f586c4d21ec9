/* Starting the CUDA backend where something is missing or doesn't fit: the words say what, and the
 * CPU goes on. A plug-in is loaded once a process, so each case has a process of its own. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>

#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#include "kernels/plugin.h"

#define BIN TANDEM_BIN_DIR "/"
#define DRIVER BIN "libtandem_strange_right.so" /* any library does */

/* What the child found. */
struct found {
    int rc, again, of_cpu;
    struct error error, second;
};

/* As a program does it: cuda first, then the CPU. */
static struct found look(void)
{
    struct found f = {0};
    struct device *dev = NULL;
    const struct kernels *k;
    const struct kernels_options cuda = {.backend = "cuda"};
    const struct kernels_options cpu = {.backend = "cpu", .num_threads = 1};
    f.rc = kernels_open(&cuda, &dev, &k, &f.error);
    f.again = kernels_open(&cuda, &dev, &k, &f.second);
    f.of_cpu = kernels_open(&cpu, &dev, &k, NULL);
    if (f.of_cpu == 0) {
        dev->ops->close(dev);
    }
    return f;
}

static void set(const char *name, const char *value)
{
    if (value) {
        setenv(name, value, 1);
    } else {
        unsetenv(name);
    }
}

static struct found in_child(const char *driver, const char *plugin)
{
    int pipes[2];
    struct found f;
    assert_int_equal(pipe(pipes), 0);
    pid_t child = fork();
    assert_true(child >= 0);
    if (child == 0) {
        signal(SIGBUS, SIG_DFL); /* cmocka's would go on with the test, twice */
        set("TANDEM_CUDA_DRIVER", driver);
        set("TANDEM_CUDA_PLUGIN", plugin);
        set("CUDA_VISIBLE_DEVICES", "");
        f = look();
        _exit(write(pipes[1], &f, sizeof f) == sizeof f ? 0 : 1);
    }
    close(pipes[1]);
    ssize_t got = read(pipes[0], &f, sizeof f);
    int status;
    assert_int_equal(waitpid(child, &status, 0), child);
    close(pipes[0]);
    assert_int_equal(got, sizeof f);
    return f;
}

/* All words in the text; the same again when it is asked for again; and the CPU goes on. */
static void expect(const char *driver, const char *plugin, const char *const words[3])
{
    struct found f = in_child(driver, plugin);
    assert_int_equal(f.rc, -1);
    for (int i = 0; i < 3 && words[i]; i++) {
        if (!strstr(f.error.text, words[i])) {
            fail_msg("\"%s\" lacks \"%s\"", f.error.text, words[i]);
        }
    }
    assert_int_equal(f.error.code, ERR_FAILED_PRECONDITION);
    assert_int_equal(strncmp(f.error.text, "backend cuda: ", 14), 0);
    assert_int_equal(f.again, -1);
    assert_string_equal(f.second.text, f.error.text);
    assert_int_equal(f.of_cpu, 0);
}

#define EXPECT(driver, plugin, ...) expect(driver, plugin, (const char *const[3]){__VA_ARGS__})

/* The plug-in isn't even looked for: what it is linked to takes long to load. */
static void without_a_driver_that_is_said(void **state)
{
    (void)state;
    EXPECT("/nowhere/libcuda.so.1", BIN "libtandem_strange_right.so", "no NVIDIA driver",
           "/nowhere/libcuda.so.1", "use backend cpu");
}

static void without_a_plugin_it_is_said_where_it_was_looked_for(void **state)
{
    (void)state;
    EXPECT(DRIVER, BIN "libtandem_not_there.so", "no CUDA plug-in", "TANDEM_CUDA_PLUGIN",
           "libtandem_not_there.so");
    EXPECT(DRIVER, "libtandem_strange_right.so", "TANDEM_CUDA_PLUGIN", "not an absolute path");
}

static void a_plugin_of_another_version_is_refused(void **state)
{
    (void)state;
    EXPECT(DRIVER, BIN "libtandem_strange_other_abi.so", "libtandem_strange_other_abi.so",
           "its abi is 2, ours 1", "from one build");
    EXPECT(DRIVER, BIN "libtandem_strange_smaller.so", "older version", "bytes", "from one build");
}

static void what_is_no_plugin_is_refused(void **state)
{
    (void)state;
    EXPECT(DRIVER, BIN "libtandem_strange_no_entry.so", "no plug-in of ours",
           "tandem_plugin_entry");
    EXPECT(DRIVER, TANDEM_SOURCE_DIR "/README.md", "CUDA plug-in", "README.md");
}

/* As an interrupted copy leaves it. Whoever opened it would die of it. */
static void a_plugin_that_was_copied_half_is_refused(void **state)
{
    (void)state;
    static const off_t lengths[] = {100, 600, 5000};
    char path[] = "/tmp/plugin_test.XXXXXX", data[5000];
    FILE *whole = fopen(DRIVER, "rb");
    assert_non_null(whole);
    assert_int_equal(fread(data, 1, sizeof data, whole), sizeof data);
    fclose(whole);
    int fd = mkstemp(path);
    assert_true(fd >= 0);
    assert_int_equal(write(fd, data, sizeof data), sizeof data);
    for (size_t i = 3; i-- > 0;) {
        assert_int_equal(ftruncate(fd, lengths[i]), 0);
        EXPECT(DRIVER, path, "CUDA plug-in", path, "cut short");
        EXPECT(path, DRIVER, "no NVIDIA driver", path, "cut short");
    }
    close(fd);
    unlink(path);
}

static void an_old_driver_is_said_by_the_plugin(void **state)
{
    (void)state;
    EXPECT(DRIVER, BIN "libtandem_strange_old_driver.so", "the NVIDIA driver is too old");
}

static void no_device_is_said_with_what_hides_it(void **state)
{
    (void)state;
    EXPECT(DRIVER, BIN "libtandem_strange_no_device.so", "no device",
           "CUDA_VISIBLE_DEVICES is \"\"");
}

/* A right one is opened, and so is one whose table has grown since. */
static void a_right_plugin_opens_the_device(void **state)
{
    (void)state;
    static const char *const right[] = {BIN "libtandem_strange_right.so",
                                        BIN "libtandem_strange_larger.so"};
    for (int i = 0; i < 2; i++) {
        struct found f = in_child(DRIVER, right[i]);
        assert_int_equal(f.error.code, ERR_UNAVAILABLE);
        assert_string_equal(f.error.text, "backend cuda: a device that a test has");
        assert_int_equal(f.of_cpu, 0);
    }
}

/* The simulated one, where it is built: as a GPU's would, it looks at the driver and the devices.
 */
static void the_simulated_plugin_is_looked_at_alike(void **state)
{
    (void)state;
    const char *sim = BIN "libtandem_cuda_sim.so", *driver = BIN "libtandem_driver_sim.so";
    if (access(sim, F_OK) != 0) {
        skip();
    }
    struct found f = in_child(driver, sim);
    assert_int_equal(f.rc, 0);
    assert_int_equal(f.of_cpu, 0);
    setenv("CUSIM_DRIVER", "10020", 1);
    EXPECT(driver, sim, "driver is too old", "CUDA 10.2", "use backend cpu");
    setenv("CUSIM_DRIVER", "0", 1);
    EXPECT(driver, sim, "driver doesn't answer");
    unsetenv("CUSIM_DRIVER");
    setenv("CUSIM_DEVICES", "0", 1);
    EXPECT(driver, sim, "no device");
    unsetenv("CUSIM_DEVICES");
    setenv("CUSIM_CAPABILITY", "70", 1);
    EXPECT(driver, sim, "compute capability 7.0", "8.0 or later is needed");
    unsetenv("CUSIM_CAPABILITY");
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(without_a_driver_that_is_said),
        cmocka_unit_test(without_a_plugin_it_is_said_where_it_was_looked_for),
        cmocka_unit_test(a_plugin_of_another_version_is_refused),
        cmocka_unit_test(what_is_no_plugin_is_refused),
        cmocka_unit_test(a_plugin_that_was_copied_half_is_refused),
        cmocka_unit_test(an_old_driver_is_said_by_the_plugin),
        cmocka_unit_test(no_device_is_said_with_what_hides_it),
        cmocka_unit_test(a_right_plugin_opens_the_device),
        cmocka_unit_test(the_simulated_plugin_is_looked_at_alike),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
