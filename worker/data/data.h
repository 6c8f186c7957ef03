/* Training data: sets of labelled images, the order of an epoch, batches.
 *
 *     source.h   where images come from; the interface that the sources below implement
 *     dataset.h  a source: images and labels in memory
 *     folder.h   a source: pictures in folders, one a class; folder_list.h finds them
 *     padded.h   a source around another one: padded random crops
 *     digits.h   the built-in set: handwriting-like digits, drawn from a seed
 *     idx.h      MNIST's IDX files
 *     sampler.h  which images a rank sees in an epoch: torch's DistributedSampler
 *     loader.h   batches, gathered by threads while earlier steps run
 *     rng.h      PyTorch's CPU random numbers
 *     fileio.h   whole reads and writes of files, used by checkpoints too
 *
 * The path of an image: source.h (bytes) -> loader.h (batch, in the order of sampler.h) ->
 * net_forward_images() (normalised). */
#ifndef WORKER_DATA_DATA_H
#define WORKER_DATA_DATA_H

#include "worker/data/dataset.h"
#include "worker/data/digits.h"
#include "worker/data/fileio.h"
#include "worker/data/folder.h"
#include "worker/data/idx.h"
#include "worker/data/loader.h"
#include "worker/data/padded.h"
#include "worker/data/rng.h"
#include "worker/data/sampler.h"
#include "worker/data/source.h"

#endif
