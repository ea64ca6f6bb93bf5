package digits

import "math"

const classes = 10

// net is a network in training. The lanes share it: they read its weights, and write only their own gradients.
type net interface {
	weights() [][]float32
	// lane returns working memory for one lane, with gradients shaped like the weights.
	lane() trainingLane
}

// trainingLane runs one sample at a time.
type trainingLane interface {
	gradients() [][]float32
	// learn adds the gradient of a sample's loss to the gradients. forward only computes scores.
	learn(pixels []float32, label int)
	forward(pixels []float32) []float32
}

// lossGradient computes the gradient of the cross entropy with respect to the scores, for a sample with this label:
// the softmax of the scores, less 1 at the label.
func lossGradient(dst, scores []float32, label int) {
	maxScore := scores[0]
	for _, v := range scores {
		maxScore = max(maxScore, v)
	}
	sum := float32(0)
	for i, v := range scores {
		dst[i] = float32(math.Exp(float64(v - maxScore)))
		sum += dst[i]
	}
	for i := range dst {
		dst[i] /= sum
	}
	dst[label]--
}

// add computes y += a*x.
func add(y, x []float32, a float32) {
	y = y[:len(x)]
	for i, v := range x {
		y[i] += a * v
	}
}

// dot returns the sum of the products of two vectors. Four sums at a time run in parallel on a CPU.
func dot(x, y []float32) float32 {
	y = y[:len(x)]
	var s0, s1, s2, s3 float32
	i := 0
	for ; i+4 <= len(x); i += 4 {
		s0 += x[i] * y[i]
		s1 += x[i+1] * y[i+1]
		s2 += x[i+2] * y[i+2]
		s3 += x[i+3] * y[i+3]
	}
	for ; i < len(x); i++ {
		s0 += x[i] * y[i]
	}
	return s0 + s1 + s2 + s3
}

// zerosLike returns zeros in the shape of w.
func zerosLike(w [][]float32) [][]float32 {
	out := make([][]float32, len(w))
	for i := range w {
		out[i] = make([]float32, len(w[i]))
	}
	return out
}
