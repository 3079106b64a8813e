/* Float32 kernels of the training pass, forward and backward; every array is contiguous.
   Backward functions add into gradients of weights and overwrite all others. */
#include <math.h>
#include <string.h>

#define MAX_MIX 64    /* hc * hc, hc <= 8 */
#define MAX_STAGES 41 /* 2 * iterations - 1 */

void rms_forward(long n, int d, float eps, const float *x, const float *w, float *y) {
  for (long t = 0; t < n; t++, x += d, y += d) {
    float sum = 0;
    for (int k = 0; k < d; k++) sum += x[k] * x[k];
    float r = 1.0f / sqrtf(sum / d + eps);
    for (int k = 0; k < d; k++) y[k] = x[k] * r * w[k];
  }
}

void rms_backward(long n, int d, float eps, const float *x, const float *w, const float *g,
                  float *gx, float *gw) {
  for (long t = 0; t < n; t++, x += d, g += d, gx += d) {
    float sum = 0, dot = 0;
    for (int k = 0; k < d; k++) {
      sum += x[k] * x[k];
      dot += g[k] * w[k] * x[k];
    }
    float r = 1.0f / sqrtf(sum / d + eps), c = r * r * r * dot / d;
    for (int k = 0; k < d; k++) {
      gw[k] += g[k] * x[k] * r;
      gx[k] = g[k] * w[k] * r - c * x[k];
    }
  }
}

void leave_forward(long n, int hc, int d, const float *post, const float *y, const float *comb,
                   const float *res, float *out) {
  for (long t = 0; t < n; t++, post += hc, y += d, comb += hc * hc, res += hc * d)
    for (int j = 0; j < hc; j++, out += d) {
      for (int k = 0; k < d; k++) out[k] = post[j] * y[k];
      for (int i = 0; i < hc; i++) {
        const float c = comb[i * hc + j], *r = res + i * d;
        for (int k = 0; k < d; k++) out[k] += c * r[k];
      }
    }
}

void leave_backward(long n, int hc, int d, const float *post, const float *y, const float *comb,
                    const float *res, const float *g, float *gpost, float *gy, float *gcomb,
                    float *gres) {
  for (long t = 0; t < n; t++) {
    memset(gy, 0, d * sizeof(float));
    memset(gres, 0, (size_t)hc * d * sizeof(float));
    for (int j = 0; j < hc; j++) {
      const float *gj = g + j * d, p = post[j];
      float dot = 0;
      for (int k = 0; k < d; k++) {
        dot += gj[k] * y[k];
        gy[k] += p * gj[k];
      }
      gpost[j] = dot;
      for (int i = 0; i < hc; i++) {
        const float *r = res + i * d, c = comb[i * hc + j];
        float *out = gres + i * d, inner = 0;
        for (int k = 0; k < d; k++) {
          inner += r[k] * gj[k];
          out[k] += c * gj[k];
        }
        gcomb[i * hc + j] = inner;
      }
    }
    post += hc, y += d, comb += hc * hc, res += hc * d, g += hc * d;
    gpost += hc, gy += d, gcomb += hc * hc, gres += hc * d;
  }
}

static float sigmoid(float x) { return 1.0f / (1.0f + expf(-x)); }

/* Divide by row sums (rows = 1) or column sums; `sums` keeps the divisors. */
static void normalise(int hc, int rows, float eps, float *c, float *sums) {
  for (int a = 0; a < hc; a++) {
    float sum = eps;
    for (int b = 0; b < hc; b++) sum += rows ? c[a * hc + b] : c[b * hc + a];
    sums[a] = sum;
    for (int b = 0; b < hc; b++) *(rows ? c + a * hc + b : c + b * hc + a) /= sum;
  }
}

/* From z's last hc * hc values: stages[s] is the matrix after s divisions, p the softmax. */
static void balance(int hc, int iterations, float eps, const float *z, float *p,
                    float stages[][MAX_MIX], float sums[][8]) {
  for (int i = 0; i < hc; i++) {
    float top = -1e30f, sum = 0;
    for (int j = 0; j < hc; j++) top = fmaxf(top, z[i * hc + j]);
    for (int j = 0; j < hc; j++) sum += p[i * hc + j] = expf(z[i * hc + j] - top);
    for (int j = 0; j < hc; j++) p[i * hc + j] /= sum;
  }
  for (int m = 0; m < hc * hc; m++) stages[0][m] = p[m] + eps;
  for (int s = 0; s < 2 * iterations - 1; s++) {
    memcpy(stages[s + 1], stages[s], sizeof(float) * hc * hc);
    normalise(hc, s % 2, eps, stages[s + 1], sums[s]);
  }
}

static float collapsed(int hc, int d, const float *carried, const float *stream, float eps,
                       float *c) {
  float sum = 0;
  memset(c, 0, d * sizeof(float));
  for (int i = 0; i < hc; i++)
    for (int k = 0; k < d; k++) c[k] += carried[i] * stream[i * d + k];
  for (int k = 0; k < d; k++) sum += c[k] * c[k];
  return 1.0f / sqrtf(sum / d + eps);
}

static float unit(int size, const float *stream, float eps) {
  float sum = 0;
  for (int k = 0; k < size; k++) sum += stream[k] * stream[k];
  return 1.0f / sqrtf(sum / size + eps);
}

void enter_forward(long n, int hc, int d, int iterations, float eps, float hc_eps,
                   const float *stream, const float *carried, const float *raw,
                   const float *scale, const float *base, const float *w, float *x, float *pre,
                   float *post, float *comb) {
  int m = (2 + hc) * hc;
  float z[MAX_MIX + 16], p[MAX_MIX], stages[MAX_STAGES + 1][MAX_MIX], sums[MAX_STAGES][8];
  for (long t = 0; t < n; t++) {
    float f = unit(hc * d, stream, eps);
    for (int k = 0; k < m; k++) z[k] = raw[k] * f * scale[k] + base[k];
    for (int i = 0; i < hc; i++) {
      pre[i] = sigmoid(z[i]) + hc_eps;
      post[i] = 2.0f * sigmoid(z[hc + i]);
    }
    balance(hc, iterations, hc_eps, z + 2 * hc, p, stages, sums);
    memcpy(comb, stages[2 * iterations - 1], sizeof(float) * hc * hc);
    float r = collapsed(hc, d, carried, stream, eps, x);
    for (int k = 0; k < d; k++) x[k] *= r * w[k];
    stream += hc * d, carried += hc, raw += m, x += d, pre += hc, post += hc, comb += hc * hc;
  }
}

void enter_backward(long n, int hc, int d, int iterations, float eps, float hc_eps,
                    const float *stream, const float *carried, const float *raw,
                    const float *scale, const float *base, const float *w, const float *gx,
                    const float *gpre, const float *gpost, const float *gcomb, float *buffer,
                    float *gstream, float *gcarried, float *graw, float *gscale, float *gbase,
                    float *gw) {
  int m = (2 + hc) * hc, size = hc * hc;
  float z[MAX_MIX + 16], gz[MAX_MIX + 16], p[MAX_MIX], gc[MAX_MIX];
  float stages[MAX_STAGES + 1][MAX_MIX], sums[MAX_STAGES][8];
  for (long t = 0; t < n; t++) {
    float f = unit(hc * d, stream, eps), df = 0;
    for (int k = 0; k < m; k++) z[k] = raw[k] * f * scale[k] + base[k];
    for (int i = 0; i < hc; i++) {
      float a = sigmoid(z[i]), b = sigmoid(z[hc + i]);
      gz[i] = gpre[i] * a * (1 - a);
      gz[hc + i] = gpost[i] * 2.0f * b * (1 - b);
    }
    balance(hc, iterations, hc_eps, z + 2 * hc, p, stages, sums);
    memcpy(gc, gcomb, sizeof(float) * size);
    for (int s = 2 * iterations - 2; s >= 0; s--)
      for (int a = 0; a < hc; a++) {
        float dot = 0;
        for (int b = 0; b < hc; b++) {
          int k = s % 2 ? a * hc + b : b * hc + a;
          dot += gc[k] * stages[s + 1][k];
        }
        for (int b = 0; b < hc; b++) {
          int k = s % 2 ? a * hc + b : b * hc + a;
          gc[k] = (gc[k] - dot) / sums[s][a];
        }
      }
    for (int i = 0; i < hc; i++) {
      float dot = 0;
      for (int j = 0; j < hc; j++) dot += gc[i * hc + j] * p[i * hc + j];
      for (int j = 0; j < hc; j++)
        gz[2 * hc + i * hc + j] = p[i * hc + j] * (gc[i * hc + j] - dot);
    }
    for (int k = 0; k < m; k++) {
      gbase[k] += gz[k];
      gscale[k] += gz[k] * raw[k] * f;
      graw[k] = gz[k] * scale[k] * f;
      df += gz[k] * scale[k] * raw[k];
    }
    float r = collapsed(hc, d, carried, stream, eps, buffer), dot = 0;
    for (int k = 0; k < d; k++) {
      gw[k] += gx[k] * buffer[k] * r;
      dot += gx[k] * w[k] * buffer[k];
    }
    float c = r * r * r * dot / d, u = -f * f * f * df / (hc * d);
    for (int k = 0; k < d; k++) buffer[k] = gx[k] * w[k] * r - c * buffer[k];
    for (int i = 0; i < hc; i++) {
      float inner = 0;
      for (int k = 0; k < d; k++) {
        inner += buffer[k] * stream[i * d + k];
        gstream[i * d + k] = carried[i] * buffer[k] + u * stream[i * d + k];
      }
      gcarried[i] = inner;
    }
    stream += hc * d, carried += hc, raw += m, gx += d, gpre += hc, gpost += hc, gcomb += size;
    gstream += hc * d, gcarried += hc, graw += m;
  }
}

/* joined [n, experts, 2, inter], scale [n, experts] -> out [n, experts, inter]. */
void swiglu_forward(long n, int experts, int inter, float limit, const float *joined,
                    const float *scale, float *out) {
  for (long t = 0; t < n * experts; t++, joined += 2 * inter, out += inter) {
    float s = scale[t];
    if (s == 0) {
      memset(out, 0, inter * sizeof(float));
      continue;
    }
    for (int k = 0; k < inter; k++) {
      float gate = fminf(joined[k], limit);
      float up = fmaxf(fminf(joined[inter + k], limit), -limit);
      out[k] = s * gate / (1.0f + expf(-gate)) * up;
    }
  }
}

void swiglu_backward(long n, int experts, int inter, float limit, const float *joined,
                     const float *scale, const float *g, float *gjoined, float *gscale) {
  for (long t = 0; t < n * experts; t++, joined += 2 * inter, gjoined += 2 * inter, g += inter) {
    float s = scale[t], dot = 0;
    if (s == 0) {
      memset(gjoined, 0, 2 * inter * sizeof(float));
      gscale[t] = 0;
      continue;
    }
    for (int k = 0; k < inter; k++) {
      float gate = fminf(joined[k], limit);
      float up = fmaxf(fminf(joined[inter + k], limit), -limit);
      float sig = 1.0f / (1.0f + expf(-gate)), silu = gate * sig;
      dot += g[k] * silu * up;
      float slope = sig * (1 + gate * (1 - sig));
      gjoined[k] = joined[k] < limit ? g[k] * s * up * slope : 0;
      float inside = joined[inter + k] < limit && joined[inter + k] > -limit;
      gjoined[inter + k] = inside * g[k] * s * silu;
    }
    gscale[t] = dot;
  }
}

/* score [batch, length, heads, width] to weights in place; visible [masked, width], where masked
   is length or batch * length. */
void weights_forward(long batch, int length, int heads, int width, int masked, float factor,
                     const unsigned char *visible, const float *sink, float *score) {
  for (long t = 0; t < batch * length * heads; t++, score += width) {
    const unsigned char *seen = visible + (t / heads % masked) * width;
    float bias = sink[t % heads], top = bias;
    for (int k = 0; k < width; k++) {
      score[k] = seen[k] ? score[k] * factor : -1e30f;
      top = fmaxf(top, score[k]);
    }
    float sum = 0;
    for (int k = 0; k < width; k++) {
      score[k] = expf(score[k] - top);
      sum += score[k];
    }
    sum = 1.0f / (sum + expf(bias - top));
    for (int k = 0; k < width; k++) score[k] *= sum;
  }
}

/* The gradient of the raw products in place of that of the weights. */
void weights_backward(long rows, int heads, int width, float factor, const float *weight,
                      float *g, float *gsink) {
  for (long t = 0; t < rows; t++, weight += width, g += width) {
    float dot = 0, sum = 0;
    for (int k = 0; k < width; k++) {
      dot += weight[k] * g[k];
      sum += weight[k];
    }
    gsink[t % heads] -= (1 - sum) * dot;
    for (int k = 0; k < width; k++) g[k] = weight[k] * (g[k] - dot) * factor;
  }
}

/* Turn the last 2 * pairs of x [batch, length, heads, width]; sign -1 turns back. */
void turn(long batch, int length, int heads, int width, int pairs, float sign,
          const float *angles, const float *x, float *y) {
  int kept = width - 2 * pairs;
  for (long t = 0; t < batch * length * heads; t++, x += width, y += width) {
    const float *angle = angles + (t / heads % length) * 2 * pairs;
    memcpy(y, x, kept * sizeof(float));
    for (int k = 0; k < pairs; k++) {
      float a = x[kept + 2 * k], b = x[kept + 2 * k + 1];
      float cos = angle[2 * k], sin = sign * angle[2 * k + 1];
      y[kept + 2 * k] = a * cos - b * sin;
      y[kept + 2 * k + 1] = a * sin + b * cos;
    }
  }
}
