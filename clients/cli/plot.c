#include "clients/cli/plot.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/error.h"
#include "clients/cli/human.h"

enum { LABEL_WIDTH = 9, WIDTH_MIN = 24, WIDTH_MAX = 400, HEIGHT_MIN = 6, HEIGHT_MAX = 100 };

/* Below this many points nothing is cut off; what is cut lies beyond this share of the range of
 * most values. */
enum { CALM_POINTS = 40, SPARK_MAX = 120 };
#define CALM_REACH 0.75

/* Dots: 2 x 4 a character with braille, else 1 x 1. Row 0 is the top. */
struct canvas {
    unsigned char *dots; /* owned; one byte a dot */
    int columns, rows;   /* characters */
    int across, down;    /* dots a character */
};

struct range {
    double low, high;
};

static bool find_range(const double *v, size_t n, struct range *out)
{
    bool any = false;
    for (size_t i = 0; i < n; i++) {
        if (!isfinite(v[i])) {
            continue;
        }
        out->low = !any || v[i] < out->low ? v[i] : out->low;
        out->high = !any || v[i] > out->high ? v[i] : out->high;
        any = true;
    }
    if (any && out->low == out->high) {
        double pad = out->low != 0 ? fabs(out->low) * 0.01 : 1;
        out->low -= pad;
        out->high += pad;
    }
    return any;
}

static int rising(const void *a, const void *b)
{
    double x = *(const double *)a, y = *(const double *)b;
    return (x > y) - (x < y);
}

/* The range of most values: one spike must not squeeze all others into a line. Where the outer
 * twentieth reaches far beyond the rest, it's cut. *cut: how many values lie outside. */
static bool find_calm_range(const double *v, size_t n, struct range *out, size_t *cut)
{
    *cut = 0;
    if (!find_range(v, n, out)) {
        return false;
    }
    if (n < CALM_POINTS) {
        return true;
    }
    double *sorted = malloc(n * sizeof *sorted);
    size_t m = 0;
    ASSERT(sorted);
    for (size_t i = 0; i < n; i++) {
        if (isfinite(v[i])) {
            sorted[m++] = v[i];
        }
    }
    qsort(sorted, m, sizeof *sorted, rising);
    double low = sorted[m / 20], high = sorted[m - 1 - m / 20], reach = (high - low) * CALM_REACH;
    free(sorted);
    if (reach > 0) {
        out->high = fmin(out->high, high + reach);
        out->low = fmax(out->low, low - reach);
    }
    for (size_t i = 0; i < n; i++) {
        *cut += isfinite(v[i]) && (v[i] < out->low || v[i] > out->high);
    }
    return true;
}

static void set_dot(struct canvas *c, int x, int y)
{
    c->dots[(size_t)y * (size_t)(c->columns * c->across) + (size_t)x] = 1;
}

/* Source: Bresenham 1965. */
static void draw_line(struct canvas *c, int x0, int y0, int x1, int y1)
{
    int dx = abs(x1 - x0), dy = -abs(y1 - y0);
    int sx = x0 < x1 ? 1 : -1, sy = y0 < y1 ? 1 : -1;
    int e = dx + dy;
    for (;;) {
        set_dot(c, x0, y0);
        if (x0 == x1 && y0 == y1) {
            return;
        }
        int e2 = 2 * e;
        if (e2 >= dy) {
            e += dy;
            x0 += sx;
        }
        if (e2 <= dx) {
            e += dx;
            y0 += sy;
        }
    }
}

static void draw_curve(struct canvas *c, const struct plot *p, struct range rx, struct range ry)
{
    int w = c->columns * c->across - 1, h = c->rows * c->down - 1;
    bool joined = false;
    int last_x = 0, last_y = 0;
    for (size_t i = 0; i < p->n; i++) {
        if (!isfinite(p->y[i]) || !isfinite(p->x[i])) {
            joined = false;
            continue;
        }
        int x = (int)lround((p->x[i] - rx.low) / (rx.high - rx.low) * w);
        double share = (p->y[i] - ry.low) / (ry.high - ry.low);
        int y = h - (int)lround(fmin(fmax(share, 0), 1) * h); /* what is cut lies on the edge */
        draw_line(c, joined ? last_x : x, joined ? last_y : y, x, y);
        last_x = x;
        last_y = y;
        joined = true;
    }
}

/* The braille pattern of a character cell: U+2800 plus one bit a dot. */
static void put_braille(struct buf *out, const struct canvas *c, int column, int row)
{
    static const unsigned char bits[4][2] = {
        {0x01, 0x08}, {0x02, 0x10}, {0x04, 0x20}, {0x40, 0x80}};
    unsigned pattern = 0;
    for (int y = 0; y < 4; y++) {
        for (int x = 0; x < 2; x++) {
            size_t at = (size_t)(row * 4 + y) * (size_t)(c->columns * 2) + (size_t)(column * 2 + x);
            pattern |= c->dots[at] ? bits[y][x] : 0;
        }
    }
    if (pattern) {
        char text[4] = {(char)0xE2, (char)(0xA0 | pattern >> 6), (char)(0x80 | (pattern & 63)), 0};
        buf_puts(out, text);
    } else {
        buf_putc(out, ' ');
    }
}

static void put_row(struct buf *out, const struct canvas *c, int row, bool utf8)
{
    size_t start = out->len;
    for (int column = 0; column < c->columns; column++) {
        if (utf8) {
            put_braille(out, c, column, row);
        } else {
            buf_putc(out, c->dots[row * c->columns + column] ? '*' : ' ');
        }
    }
    while (out->len > start && out->data[out->len - 1] == ' ') {
        out->data[--out->len] = 0;
    }
}

/* As many digits as tell the labels apart. */
static void put_y_label(struct buf *out, const struct plot *p, struct range ry, double value,
                        bool shown)
{
    char text[HUMAN_MAX] = "";
    double largest = fmax(fabs(ry.low), fabs(ry.high)), span = (ry.high - ry.low) / largest;
    if (shown && value >= 1e4 && span > 0.1) {
        human_count(text, value);
    } else if (shown) {
        snprintf(text, sizeof text, "%.*g", span > 0.1 ? 3 : span > 0.01 ? 4 : 6, value);
    }
    const char *axis = p->utf8 ? (shown ? "\xE2\x94\xA4" : "\xE2\x94\x82") : (shown ? "+" : "|");
    buf_printf(out, "%*.*s %s", LABEL_WIDTH - 1, LABEL_WIDTH - 1, text, axis);
}

static void put_x_axis(struct buf *out, const struct plot *p, int columns, struct range rx)
{
    char low[32], high[32];
    buf_printf(out, "%*s%s", LABEL_WIDTH, "", p->utf8 ? "\xE2\x94\x94" : "+");
    for (int i = 0; i < columns; i++) {
        buf_puts(out, p->utf8 ? "\xE2\x94\x80" : "-");
    }
    snprintf(low, sizeof low, "%.10g", rx.low);
    snprintf(high, sizeof high, "%.10g", rx.high);
    const char *name = p->x_label ? p->x_label : "";
    int left = columns - (int)strlen(low) - (int)strlen(high) - (int)strlen(name);
    int before = left > 2 ? left / 2 : 1;
    buf_printf(out, "\n%*s %s%*s%s%*s%s\n", LABEL_WIDTH, "", low, before, "", name,
               left - before > 1 ? left - before : 1, "", high);
}

/* Says what the picture leaves out. */
static void put_cut(struct buf *out, const struct plot *p, size_t cut)
{
    struct range all;
    char low[HUMAN_MAX], high[HUMAN_MAX];
    if (cut > 0 && find_range(p->y, p->n, &all)) {
        char text[128];
        int n = snprintf(text, sizeof text, "%zu of %zu lie beyond the edge", cut, p->n);
        snprintf(text + n, sizeof text - (size_t)n, " (%s to %s)", human_value(low, all.low),
                 human_value(high, all.high));
        bool fits = LABEL_WIDTH + 1 + (int)strlen(text) <= p->width;
        buf_printf(out, "%*s %.*s\n", LABEL_WIDTH, "", fits ? (int)strlen(text) : n, text);
    }
}

static int clamp(int v, int low, int high)
{
    return v < low ? low : v > high ? high : v;
}

void plot_spark(struct buf *out, const double *v, size_t n, int width)
{
    double cells[SPARK_MAX];
    size_t num = (size_t)clamp(width, 1, SPARK_MAX);
    struct range r;
    num = n < num ? n : num;
    for (size_t i = 0; i < num; i++) { /* the mean of its share */
        double sum = 0;
        size_t from = i * n / num, to = (i + 1) * n / num, any = 0;
        for (size_t k = from; k < to; k++) {
            sum += isfinite(v[k]) ? v[k] : 0;
            any += isfinite(v[k]) ? 1 : 0;
        }
        cells[i] = any ? sum / (double)any : NAN;
    }
    if (num < 2 || !find_range(cells, num, &r)) {
        return;
    }
    for (size_t i = 0; i < num; i++) {
        int eighth = isfinite(cells[i]) ? (int)((cells[i] - r.low) / (r.high - r.low) * 7.999) : -1;
        char text[4] = {(char)0xE2, (char)0x96, (char)(0x81 + eighth), 0};
        buf_puts(out, eighth < 0 ? " " : text);
    }
}

void plot_draw(struct buf *out, const struct plot *p)
{
    struct range rx, ry;
    size_t cut;
    if (!find_range(p->x, p->n, &rx) || !find_calm_range(p->y, p->n, &ry, &cut)) {
        buf_printf(out, "%s: nothing to plot\n", p->title);
        return;
    }
    rx.low = floor(rx.low); /* steps are whole; a single one has a range about it that isn't */
    rx.high = ceil(rx.high);
    struct canvas c = {.columns = clamp(p->width, WIDTH_MIN, WIDTH_MAX) - LABEL_WIDTH - 1,
                       .rows = clamp(p->height, HEIGHT_MIN, HEIGHT_MAX) - 3,
                       .across = p->utf8 ? 2 : 1,
                       .down = p->utf8 ? 4 : 1};
    c.dots = calloc((size_t)(c.columns * c.across), (size_t)(c.rows * c.down));
    ASSERT(c.dots);
    draw_curve(&c, p, rx, ry);
    buf_printf(out, "%*s %s\n", LABEL_WIDTH, "", p->title);
    put_cut(out, p, cut);
    int every = c.rows > 12 ? 4 : 3;
    for (int row = 0; row < c.rows; row++) {
        bool shown = row == 0 || row == c.rows - 1 || (row % every == 0 && row < c.rows - 2);
        double share = (double)row / (c.rows - 1);
        put_y_label(out, p, ry, ry.high - share * (ry.high - ry.low), shown);
        buf_puts(out, p->colour ? p->colour : "");
        put_row(out, &c, row, p->utf8);
        buf_puts(out, p->colour ? "\033[0m\n" : "\n");
    }
    put_x_axis(out, p, c.columns, rx);
    free(c.dots);
}
