package digits

import "math/rand/v2"

// mlp has one hidden layer.
type mlp struct {
	hidden int
	w      [][]float32 // first [pixel][hidden], its bias, second [hidden][class], its bias
}

func newMLP(hidden int, rng *rand.Rand) *mlp {
	return &mlp{hidden, [][]float32{
		normalValues(rng, Pixels*hidden, 1.0/20), filledSlice(hidden, 0.5), // all units take part at first
		normalValues(rng, hidden*classes, 1/sqrt(float64(hidden))), make([]float32, classes)}}
}

func (m *mlp) weights() [][]float32 { return m.w }

type mlpLane struct {
	m                  *mlp
	g                  [][]float32
	h, dh, scores, out []float32
}

func (m *mlp) lane() trainingLane {
	return &mlpLane{m, zerosLike(m.w), make([]float32, m.hidden), make([]float32, m.hidden), make([]float32, classes), make([]float32, classes)}
}

func (l *mlpLane) gradients() [][]float32 { return l.g }

func (l *mlpLane) forward(pixels []float32) []float32 {
	n := l.m.hidden
	copy(l.h, l.m.w[1])
	for p, v := range pixels {
		if v != 0 {
			add(l.h, l.m.w[0][p*n:p*n+n], v)
		}
	}
	copy(l.scores, l.m.w[3])
	for i, v := range l.h {
		if v > 0 {
			add(l.scores, l.m.w[2][i*classes:][:classes], v)
		} else {
			l.h[i] = 0
		}
	}
	return l.scores
}

func (l *mlpLane) learn(pixels []float32, label int) {
	n := l.m.hidden
	lossGradient(l.out, l.forward(pixels), label)
	add(l.g[3], l.out, 1)
	for i, v := range l.h {
		l.dh[i] = 0
		if v > 0 {
			add(l.g[2][i*classes:][:classes], l.out, v)
			l.dh[i] = dot(l.m.w[2][i*classes:][:classes], l.out)
		}
	}
	add(l.g[1], l.dh, 1)
	for p, v := range pixels {
		if v != 0 {
			add(l.g[0][p*n:p*n+n], l.dh, v)
		}
	}
}
