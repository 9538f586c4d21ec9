/* tandem-tool gpus: can a rank on this host compute on GPUs? One line on stdout: how many, or why
 * not. `tandem doctor` runs it, in a process of its own: a driver may crash or hang. */
#ifndef TANDEM_RUNTIME_TOOL_GPUS_H
#define TANDEM_RUNTIME_TOOL_GPUS_H

/* 0: there are some; 1: there aren't, though there is a driver; 2: used wrongly; 3: no driver. */
int gpus_main(int argc, char **argv);

#endif
