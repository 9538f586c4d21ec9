#include "clients/cli/progress.h"

#include <math.h>
#include <stdio.h>
#include <string.h>

#include "clients/cli/human.h"

enum { NUM_PARTS = 5, PART_BYTES = 48, BAR_MIN = 8, BAR_MAX = 40, NAME_MAX_WIDTH = 24 };
/* What all figures need beside the bar. */
enum { FIGURES_WIDTH = 64 };

/* In the order of the line; "" = not known. */
static void figures(const struct progress *p, char parts[NUM_PARTS][PART_BYTES])
{
    char h[HUMAN_MAX];
    memset(parts, 0, NUM_PARTS * PART_BYTES);
    if (!isnan(p->loss)) {
        snprintf(parts[0], PART_BYTES, "loss %s", human_value(h, p->loss));
    }
    if (!isnan(p->grad_norm)) {
        snprintf(parts[1], PART_BYTES, "|g| %s", human_value(h, p->grad_norm));
    }
    if (!isnan(p->tokens_per_s)) {
        snprintf(parts[2], PART_BYTES, "%s tok/s", human_count(h, p->tokens_per_s));
    }
    if (!isnan(p->mfu)) {
        snprintf(parts[3], PART_BYTES, "MFU %.1f%%", 100 * p->mfu);
    }
    if (!isnan(p->eta_s)) {
        snprintf(parts[4], PART_BYTES, "ETA %s", human_duration(h, p->eta_s));
    }
}

/* Empties what doesn't fit, the least important first to go. */
static void fit(char parts[NUM_PARTS][PART_BYTES], int room)
{
    static const int by_importance[NUM_PARTS] = {0, 4, 2, 3, 1};
    for (int i = 0; i < NUM_PARTS; i++) {
        char *part = parts[by_importance[i]];
        int need = part[0] ? (int)human_width(part) + 2 : 0;
        if (need > room) {
            part[0] = 0;
        } else {
            room -= need;
        }
    }
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
    char parts[NUM_PARTS][PART_BYTES], name[128], count[64];
    figures(p, parts);
    if (p->note) {
        memset(parts, 0, sizeof parts);
        snprintf(parts[0], PART_BYTES, "%s", p->note);
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
    fit(parts, room);
    for (int i = 0; i < NUM_PARTS; i++) {
        buf_printf(out, "%s%s", parts[i][0] ? "  " : "", parts[i]);
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
    if (!isnan(p->eta_s) && p->step < p->total_steps) {
        buf_printf(out, " eta %s", human_duration(h, p->eta_s));
    }
}
