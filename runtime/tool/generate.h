/* tandem-tool generate: a model folder continues a prompt on stdout, as it comes. */
#ifndef TANDEM_RUNTIME_TOOL_GENERATE_H
#define TANDEM_RUNTIME_TOOL_GENERATE_H

/* program: whose name messages begin with, "tandem" or "tandem-tool". argv[0] = "generate". Returns
 * the exit code: 0, 1 failed, 2 usage. */
int generate_main(const char *program, int argc, char **argv);

#endif
