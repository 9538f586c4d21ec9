/* Lines on stderr: time, level, program, text. One line is one write, so lines of several
 * processes don't mix. Safe on every thread. */
#ifndef TANDEM_BASE_LOG_H
#define TANDEM_BASE_LOG_H

enum log_level { LOG_DEBUG_LEVEL, LOG_INFO_LEVEL, LOG_WARN_LEVEL, LOG_ERROR_LEVEL };

/* Once, before other threads start. name is kept by pointer. The environment variable TANDEM_LOG
 * (debug, info, warn, error) sets the level; default info. */
void log_init(const char *name);

void log_write(enum log_level level, const char *fmt, ...) __attribute__((format(printf, 2, 3)));

#define log_debug(...) log_write(LOG_DEBUG_LEVEL, __VA_ARGS__)
#define log_info(...) log_write(LOG_INFO_LEVEL, __VA_ARGS__)
#define log_warn(...) log_write(LOG_WARN_LEVEL, __VA_ARGS__)
#define log_error(...) log_write(LOG_ERROR_LEVEL, __VA_ARGS__)

#endif
