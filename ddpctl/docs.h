/* The manual page and shell completion, made from the tables of verbs and options. */
#ifndef DDPCTL_DOCS_H
#define DDPCTL_DOCS_H

#include "common/option_docs.h"
#include "ddpctl/ctl.h"

void docs_write(enum option_form form, struct buf *out);
/* ddpctl completion bash|zsh|fish. */
int verb_completion(struct ctl *ctl);

#endif
