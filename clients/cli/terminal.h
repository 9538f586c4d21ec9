/* The terminal: its width, and Ctrl-C as a wish to detach. */
#ifndef TANDEM_CLIENTS_CLI_TERMINAL_H
#define TANDEM_CLIENTS_CLI_TERMINAL_H

#include <stdbool.h>

/* Columns and rows of stdout's terminal; COLUMNS and LINES, else 80 x 24, where there is none. */
int terminal_width(void);
int terminal_height(void);
/* From now on Ctrl-C only sets a mark. A second one ends the program. */
void terminal_catch_interrupt(void);
bool terminal_interrupted(void);

#endif
