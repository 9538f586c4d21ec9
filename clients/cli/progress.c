#include "clients/cli/progress.h"

#include <math.h>
#include <stdio.h>
#include <string.h>

#include "clients/cli/human.h"

enum { MAX_PARTS = 6, BAR_MIN = 8, BAR_MAX = 40, NAME_MAX_WIDTH = 24, FIGURES_WIDTH = 64 };

/* The figures, the most important first; how many. */
static int figures(const struct progress *p, char parts[MAX_PARTS][48])
{
    char h[HUMAN_MAX];
    int n = 0;
    if (!isnan(p->loss)) {
        snprintf(parts[n++], 48, "loss %s", human_value(h, p->loss));
    }
    if (!isnan(p->eta_s)) {
        snprintf(parts[n++], 48, "ETA %s", human_duration(h, p->eta_s));
    }
    if (!isnan(p->tokens_per_s)) {
        snprintf(parts[n++], 48, "%s tok/s", human_count(h, p->tokens_per_s));
    }
    if (!isnan(p->mfu)) {
        snprintf(parts[n++], 48, "MFU %.1f%%", 100 * p->mfu);
    }
    if (!isnan(p->grad_norm)) {
        snprintf(parts[n++], 48, "|g| %s", human_value(h, p->grad_norm));
    }
    return n;
}

static void draw_cells(struct buf *out, double share, int cells, bool utf8, bool colour)
{
    /* Two steps a cell where half a cell can be drawn. */
    int filled = (int)(share * cells * 2 + 1e-9);
    buf_puts(out, colour ? "\033[36m" : "");
    buf_puts(out, utf8 ? "" : "[");
    for (int i = 0; i < cells; i++) {
        bool full = 2 * i + 1 < filled, half = 2 * i + 1 == filled;
        if (!full && colour && (i == 0 || 2 * i - 1 < filled)) {
            buf_puts(out, half ? "" : "\033[90m");
        }
        if (utf8) {
            buf_puts(out, full     ? "\xE2\x94\x81"
                          : half   ? "\xE2\x95\xB8"
                          : colour ? "\xE2\x94\x81"
                                   : " ");
        } else {
            buf_puts(out, full ? "=" : half ? ">" : " ");
        }
        if (half && colour) {
            buf_puts(out, "\033[90m");
        }
    }
    buf_puts(out, utf8 ? "" : "]");
    buf_puts(out, colour ? "\033[0m" : "");
}

void progress_bar(struct buf *out, const struct progress *p, int width, bool utf8, bool colour)
{
    char parts[MAX_PARTS][48], name[128], count[64];
    int num_parts = p->note ? 0 : figures(p, parts);
    if (p->note) {
        snprintf(parts[num_parts++], 48, "%s", p->note);
    }
    snprintf(name, sizeof name, "%.*s", NAME_MAX_WIDTH, p->name ? p->name : "");
    snprintf(count, sizeof count, "%lld/%lld", (long long)p->step, (long long)p->total_steps);
    int room = width - 1 - (int)human_width(name) - 1 - (int)strlen(count) - 1;
    int spare = room - FIGURES_WIDTH;
    int bar = spare >= BAR_MAX ? BAR_MAX : spare > room / 3 ? spare : room / 3;
    bool with_bar = bar >= BAR_MIN && p->total_steps > 0;
    room -= with_bar ? bar + (utf8 ? 1 : 3) : 0;
    if (room < 0) {
        buf_printf(out, "%.*s", width - 1 > 0 ? width - 1 : 0, count);
        return;
    }
    buf_printf(out, "%s ", name);
    if (with_bar) {
        double share = (double)p->step / (double)p->total_steps;
        draw_cells(out, share < 0 ? 0 : share > 1 ? 1 : share, bar, utf8, colour);
        buf_putc(out, ' ');
    }
    buf_puts(out, count);
    for (int i = 0; i < num_parts; i++) {
        int need = (int)human_width(parts[i]) + 2;
        if (need <= room) {
            buf_printf(out, "  %s", parts[i]);
            room -= need;
        }
    }
}

void progress_line(struct buf *out, const struct progress *p)
{
    char h[HUMAN_MAX];
    buf_printf(out, "step %lld/%lld", (long long)p->step, (long long)p->total_steps);
    if (!isnan(p->loss)) {
        buf_printf(out, " loss %s", human_value(h, p->loss));
    }
    if (!isnan(p->grad_norm)) {
        buf_printf(out, " grad_norm %s", human_value(h, p->grad_norm));
    }
    if (!isnan(p->tokens_per_s)) {
        buf_printf(out, " tokens/s %s", human_count(h, p->tokens_per_s));
    }
    if (!isnan(p->mfu)) {
        buf_printf(out, " mfu %.1f%%", 100 * p->mfu);
    }
    if (!isnan(p->eta_s)) {
        buf_printf(out, " eta %s", human_duration(h, p->eta_s));
    }
}
