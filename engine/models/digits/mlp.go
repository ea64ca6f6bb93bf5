package digits

import "math/rand/v2"

// mlp has one hidden layer.
type mlp struct {
	hidden int
	w      [][]float32 // first [pixel][hidden], its bias, second [hidden][class], its bias
}

// newMLP makes an untrained network with a number of hidden units. Its first weights are random.
func newMLP(hidden int, rng *rand.Rand) *mlp {
	return &mlp{hidden, [][]float32{
		normalValues(rng, Pixels*hidden, 1.0/20), filledSlice(hidden, 0.5), // all units take part at first
		normalValues(rng, hidden*classes, 1/sqrt(float64(hidden))), make([]float32, classes)}}
}

func (m *mlp) weights() [][]float32 { return m.w }

// mlpLane is the working memory of one lane, which trains on one sample at a time.
type mlpLane struct {
	m          *mlp
	grads      [][]float32 // sums of gradients, shaped like the weights
	hidden     []float32   // the hidden layer's values, rectified
	hiddenGrad []float32
	scores     []float32
	scoresGrad []float32
}

func (m *mlp) lane() trainingLane {
	return &mlpLane{m, zerosLike(m.w), make([]float32, m.hidden), make([]float32, m.hidden), make([]float32, classes), make([]float32, classes)}
}

func (l *mlpLane) gradients() [][]float32 { return l.grads }

// forward computes the scores of the ten classes for an image, and leaves the hidden values in l. It skips pixels of
// 0, which most of an image is.
func (l *mlpLane) forward(pixels []float32) []float32 {
	n := l.m.hidden

	// The first layer: its bias w[1], and the weights w[0] of each pixel. Then the second, w[3] and w[2], with the
	// rectifier before it.
	copy(l.hidden, l.m.w[1])
	for p, v := range pixels {
		if v != 0 {
			add(l.hidden, l.m.w[0][p*n:p*n+n], v)
		}
	}
	copy(l.scores, l.m.w[3])
	for i, v := range l.hidden {
		if v > 0 {
			add(l.scores, l.m.w[2][i*classes:][:classes], v)
		} else {
			l.hidden[i] = 0
		}
	}
	return l.scores
}

// learn adds the gradient of a sample's loss to the lane's gradients, from the scores back to the pixels.
func (l *mlpLane) learn(pixels []float32, label int) {
	n := l.m.hidden

	// The second layer. A hidden value of 0 passes no gradient on.
	lossGradient(l.scoresGrad, l.forward(pixels), label)
	add(l.grads[3], l.scoresGrad, 1)
	for i, v := range l.hidden {
		l.hiddenGrad[i] = 0
		if v > 0 {
			add(l.grads[2][i*classes:][:classes], l.scoresGrad, v)
			l.hiddenGrad[i] = dot(l.m.w[2][i*classes:][:classes], l.scoresGrad)
		}
	}

	// The first layer, whose inputs are the pixels.
	add(l.grads[1], l.hiddenGrad, 1)
	for p, v := range pixels {
		if v != 0 {
			add(l.grads[0][p*n:p*n+n], l.hiddenGrad, v)
		}
	}
}
