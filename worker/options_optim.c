#include "worker/options_optim.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

#define TRUST_LARS 0.001F /* You et al. 2017 */
#define TRUST_LARC 0.02F  /* Apex */
#define EPS 1e-8F
#define F16_LEAST 0x1p-24F /* the smallest number above 0 */
#define LOOKAHEAD_ALPHA 0.5F

/* Reads a number that `end` follows. Returns where `end` is; NULL: there is no such number. */
static const char *read_number(const char *text, char end, double *number)
{
    char *rest = NULL;

    if ((*text < '0' || *text > '9') && *text != '.')
        return NULL;
    *number = strtod(text, &rest);
    return *rest == end && isfinite(*number) ? rest : NULL;
}

static enum status take_betas(struct options *options, struct err *err)
{
    struct optim *optim = &options->optim;
    const char *text = options->betas;

    optim->beta1 = 0.9;
    optim->beta2 = 0.999;
    if (text == NULL)
        return STATUS_OK;
    text = read_number(text, ',', &optim->beta1);
    if (text == NULL || read_number(text + 1, '\0', &optim->beta2) == NULL ||
        !(optim->beta1 < 1.0 && optim->beta2 < 1.0))
        return err_set(err, STATUS_BAD_INPUT, 0,
                       "--betas %.40s: expected two numbers from 0 to below 1, as in 0.9,0.999",
                       options->betas);
    return STATUS_OK;
}

static enum status take_lookahead(struct options *options, struct err *err)
{
    struct optim *optim = &options->optim;
    const char *text = options->lookahead, *variant = options->lookahead_variant;
    double every = 0, alpha = (double)LOOKAHEAD_ALPHA;

    if (variant != NULL && strcmp(variant, "paper") != 0 && strcmp(variant, "seed") != 0)
        return err_set(err, STATUS_BAD_INPUT, 0,
                       "--lookahead-variant %.40s: expected paper or seed", variant);
    if (text == NULL && variant != NULL)
        return err_set(err, STATUS_BAD_INPUT, 0, "--lookahead-variant needs --lookahead K[,ALPHA]");
    if (text == NULL)
        return STATUS_OK;
    if (strchr(text, ',') != NULL) {
        text = read_number(text, ',', &every);
        text = text != NULL ? read_number(text + 1, '\0', &alpha) : NULL;
    } else {
        text = read_number(text, '\0', &every);
    }
    if (text == NULL || !(every >= 1.0 && every <= 1e6 && floor(every) == every) ||
        !(alpha > 0.0 && alpha <= 1.0))
        return err_set(
            err, STATUS_BAD_INPUT, 0,
            "--lookahead %.40s: expected K[,ALPHA]: steps from 1 and a number above 0 up "
            "to 1, as in 5,0.5",
            options->lookahead);
    optim->lookahead = variant != NULL && strcmp(variant, "seed") == 0 ? OPTIM_LOOKAHEAD_SEED
                                                                       : OPTIM_LOOKAHEAD_PAPER;
    optim->every = (uint32_t)every;
    optim->alpha = (float)alpha;
    return STATUS_OK;
}

static enum status not_with(const struct options *options, const char *option, struct err *err)
{
    return err_set(err, STATUS_BAD_INPUT, 0, "%s is not an option of --optimizer %s: leave it out",
                   option, optim_kind_name(options->optim.kind));
}

/* Options that this optimizer does not have. */
static enum status refuse_foreign(const struct options *options, struct err *err)
{
    const enum optim_kind kind = options->optim.kind;
    const bool is_adam = kind == OPTIM_ADAM || kind == OPTIM_ADAMW;
    const bool is_lars = kind == OPTIM_LARS || kind == OPTIM_LARC;

    if (is_adam && options->momentum > 0)
        return err_set(err, STATUS_BAD_INPUT, 0,
                       "--momentum is not an option of --optimizer %s: it has --betas",
                       optim_kind_name(kind));
    if (options->betas != NULL && !is_adam)
        return not_with(options, "--betas", err);
    if (options->eps > 0 && !is_adam && kind != OPTIM_LARC)
        return not_with(options, "--eps", err);
    if (options->trust > 0 && !is_lars)
        return not_with(options, "--trust-coefficient", err);
    if (options->dampening != 0 && kind != OPTIM_SGD)
        return not_with(options, "--dampening", err);
    if (options->nesterov && kind != OPTIM_SGD && kind != OPTIM_LARC)
        return not_with(options, "--nesterov", err);
    return STATUS_OK;
}

static enum status check_sense(const struct options *options, struct err *err)
{
    const struct optim *optim = &options->optim;

    if (optim->nesterov && (optim->momentum <= 0 || optim->dampening != 0))
        return err_set(
            err, STATUS_BAD_INPUT, 0,
            "--nesterov requires a --momentum and zero --dampening"); /* PyTorch's message */
    if (optim_uses(optim, OPTIM_EXP_AVG) && options->amp.level == 3 &&
        options->amp.half == GRAPH_F16 && optim->eps < F16_LEAST)
        return err_set(err, STATUS_BAD_INPUT, 0,
                       "--optimizer %s with --opt-level O3: its --eps of %g is 0 in fp16, as are "
                       "most squares of gradients; use --opt-level O2 or an --eps of 1e-4",
                       optim_kind_name(optim->kind), (double)optim->eps);
    return STATUS_OK;
}

static enum status take_elastic_lr(struct options *options, struct err *err)
{
    const char *text = options->elastic_lr;
    const int rule = text == NULL ? ELASTIC_LR_KEEP : elastic_lr_named(text);

    if (rule < 0)
        return err_set(err, STATUS_BAD_INPUT, 0,
                       "--elastic-lr %.40s: expected keep, linear or sqrt", text);
    if (text != NULL && options->scale_lr)
        return err_set(
            err, STATUS_BAD_INPUT, 0,
            "--elastic-lr and --scale-lr: --scale-lr computes the rate from the images of "
            "a step already, whatever they were before; leave one out");
    options->elastic_lr_rule = (enum elastic_lr)rule;
    return STATUS_OK;
}

enum status options_check_optim(struct options *options, struct err *err)
{
    const int kind = optim_kind_named(options->optimizer);
    enum status status;

    if (strcmp(options->optimizer, "sgd_nesterov") == 0) /* torchvision's */
        return err_set(err, STATUS_BAD_INPUT, 0,
                       "--optimizer sgd_nesterov: use --optimizer sgd --nesterov --momentum X");
    if (kind < 0)
        return err_set(err, STATUS_BAD_INPUT, 0,
                       "--optimizer %.40s: expected sgd, adam, adamw, lars or larc",
                       options->optimizer);
    options->optim = (struct optim){
        .lr = options->lr,
        .momentum = options->momentum,
        .dampening = options->dampening,
        .weight_decay = options->weight_decay,
        .nesterov = options->nesterov,
        .kind = (enum optim_kind)kind,
        .eps = options->eps > 0 ? options->eps : EPS,
        .trust = options->trust > 0   ? options->trust
                 : kind == OPTIM_LARC ? TRUST_LARC
                                      : TRUST_LARS,
    };
    status = refuse_foreign(options, err);
    if (status == STATUS_OK)
        status = take_elastic_lr(options, err);
    if (status == STATUS_OK)
        status = take_betas(options, err);
    if (status == STATUS_OK)
        status = take_lookahead(options, err);
    return status == STATUS_OK ? check_sense(options, err) : status;
}
