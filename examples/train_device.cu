// The kernels of train_device.rs: softmax regression on the GPU. Sums run in a fixed order, so that every run gives the same
// bits.
#include "spmd_device.cuh"

using namespace spmd;

constexpr int PIXELS = 64, ROW = PIXELS + 1, CLASSES = 10, WEIGHTS = CLASSES * ROW;

// Scores of one image for all classes.
__device__ void scores(const double *weights, const double *image, double *out) {
    for (int c = 0; c < CLASSES; ++c) {
        double sum = 0;
        for (int p = 0; p < PIXELS; ++p) sum += weights[c * ROW + p] * image[p];
        out[c] = sum + weights[c * ROW + PIXELS];
    }
}

// For each image how far the classifier is off in each class, and its loss: one thread an image.
extern "C" __global__ void errors(const double *weights, const double *images, const int *classes, u64 count, double *off,
                                  double *losses) {
    const u64 i = blockIdx.x * (u64)blockDim.x + threadIdx.x;
    if (i >= count) return;
    double score[CLASSES], highest = -1e300, total = 0;
    scores(weights, images + i * PIXELS, score);
    for (int c = 0; c < CLASSES; ++c) highest = score[c] > highest ? score[c] : highest;
    for (int c = 0; c < CLASSES; ++c) total += exp(score[c] - highest);
    for (int c = 0; c < CLASSES; ++c) {
        off[i * CLASSES + c] = exp(score[c] - highest) / total - (c == classes[i] ? 1.0 : 0.0);
    }
    losses[i] = log(total) - (score[classes[i]] - highest);
}

// The gradient over this rank's images, then the loss: one thread a number.
extern "C" __global__ void sums(const double *images, const double *off, const double *losses, u64 count, double *out) {
    const int w = blockIdx.x * blockDim.x + threadIdx.x;
    if (w > WEIGHTS) return;
    double sum = 0;
    if (w == WEIGHTS) {
        for (u64 i = 0; i < count; ++i) sum += losses[i];
    } else {
        const int c = w / ROW, p = w % ROW;
        for (u64 i = 0; i < count; ++i) sum += off[i * CLASSES + c] * (p < PIXELS ? images[i * PIXELS + p] : 1.0);
    }
    out[w] = sum;
}

// One step of gradient descent by the sums over all ranks' images.
extern "C" __global__ void step(double *weights, double *momentum, const double *sums, double images, double *loss) {
    const int w = blockIdx.x * blockDim.x + threadIdx.x;
    if (w > WEIGHTS) return;
    if (w == WEIGHTS) {
        *loss = sums[w] / images;
        return;
    }
    momentum[w] = 0.9 * momentum[w] - 0.5 * sums[w] / images;
    weights[w] += momentum[w];
}

// How many images are read correctly.
extern "C" __global__ void correct(const double *weights, const double *images, const int *classes, u64 count, u64 *right) {
    const u64 i = blockIdx.x * (u64)blockDim.x + threadIdx.x;
    if (i >= count) return;
    double score[CLASSES];
    scores(weights, images + i * PIXELS, score);
    int best = 0;
    for (int c = 1; c < CLASSES; ++c) best = score[c] > score[best] ? c : best;
    if (best == classes[i]) atomicAdd(right, 1ull);
}
