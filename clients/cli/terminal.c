#include "clients/cli/terminal.h"

#include <signal.h>
#include <stdlib.h>
#include <sys/ioctl.h>
#include <unistd.h>

static volatile sig_atomic_t interrupted;

static int from_environment(const char *name, int otherwise)
{
    const char *text = getenv(name);
    int n = text ? atoi(text) : 0;
    return n > 0 && n < 10000 ? n : otherwise;
}

int terminal_width(void)
{
    struct winsize w;
    if (ioctl(STDOUT_FILENO, TIOCGWINSZ, &w) == 0 && w.ws_col > 0) {
        return w.ws_col;
    }
    return from_environment("COLUMNS", 80);
}

int terminal_height(void)
{
    struct winsize w;
    if (ioctl(STDOUT_FILENO, TIOCGWINSZ, &w) == 0 && w.ws_row > 0) {
        return w.ws_row;
    }
    return from_environment("LINES", 24);
}

static void on_interrupt(int sig)
{
    (void)sig;
    interrupted = 1;
}

void terminal_catch_interrupt(void)
{
    struct sigaction sa = {.sa_handler = on_interrupt, .sa_flags = (int)SA_RESETHAND};
    sigemptyset(&sa.sa_mask);
    sigaction(SIGINT, &sa, NULL);
}

bool terminal_interrupted(void)
{
    return interrupted != 0;
}
