package digits

import "math/rand/v2"

// The convolutional network: two layers of 5x5 filters, each followed by a
// rectifier and a maximum over 2x2, then one linear layer.
const (
	kernel       = 5
	firstFilters = 12 // filters
	second       = 24
	side1        = Side - kernel + 1  // 24
	pool1        = side1 / 2          // 12
	side2        = pool1 - kernel + 1 // 8
	pool2        = side2 / 2          // 4
	deep         = pool2 * pool2 * second
	line         = kernel * firstFilters // values that a row of a second filter reads, next to each other
)

type conv struct {
	// first [ky][kx][filter] and bias, second [filter][ky][kx][channel] and
	// bias, linear [y][x][filter][class] and bias.
	w [][]float32
}

func newConv(rng *rand.Rand) *conv {
	return &conv{[][]float32{
		normalValues(rng, kernel*kernel*firstFilters, 1/sqrt(kernel*kernel/2)), make([]float32, firstFilters),
		normalValues(rng, second*kernel*line, 1.4/sqrt(kernel*line)), make([]float32, second),
		normalValues(rng, deep*classes, 1/sqrt(deep)), make([]float32, classes)}}
}

func (c *conv) weights() [][]float32 { return c.w }

type convLane struct {
	c           *conv
	g           [][]float32
	a1          []float32 // [y][x][filter] before the maximum
	p1, d1      []float32 // after it, and its gradient
	at1         []int32   // the places of the maxima in a1
	a2          []float32
	p2, d2      []float32
	at2         []int32
	scores, out []float32
}

func (c *conv) lane() trainingLane {
	f := func(n int) []float32 { return make([]float32, n) }
	const n1, n2 = pool1 * pool1 * firstFilters, deep
	return &convLane{c: c, g: zerosLike(c.w), a1: f(side1 * side1 * firstFilters), p1: f(n1), d1: f(n1), at1: make([]int32, n1),
		a2: f(side2 * side2 * second), p2: f(n2), d2: f(n2), at2: make([]int32, n2), scores: f(classes), out: f(classes)}
}

func (l *convLane) gradients() [][]float32 { return l.g }

func (l *convLane) forward(pixels []float32) []float32 {
	w := l.c.w
	for i := 0; i < len(l.a1); i += firstFilters {
		copy(l.a1[i:i+firstFilters], w[1])
	}
	for i, v := range pixels {
		if v == 0 {
			continue
		}
		iy, ix := i/Side, i%Side
		for ky := max(0, iy-side1+1); ky < kernel && ky <= iy; ky++ {
			for kx := max(0, ix-side1+1); kx < kernel && kx <= ix; kx++ {
				add(l.a1[((iy-ky)*side1+ix-kx)*firstFilters:][:firstFilters], w[0][(ky*kernel+kx)*firstFilters:][:firstFilters], v)
			}
		}
	}
	maxPool(l.p1, l.at1, l.a1, side1, firstFilters)
	for y := range side2 {
		for x := range side2 {
			for f := range second {
				s := w[3][f]
				for ky := range kernel {
					s += dot(w[2][(f*kernel+ky)*line:][:line], l.p1[((y+ky)*pool1+x)*firstFilters:][:line])
				}
				l.a2[(y*side2+x)*second+f] = s
			}
		}
	}
	maxPool(l.p2, l.at2, l.a2, side2, second)
	copy(l.scores, w[5])
	for i, v := range l.p2 {
		if v > 0 {
			add(l.scores, w[4][i*classes:][:classes], v)
		}
	}
	return l.scores
}

// maxPool rectifies src and takes the maximum over 2x2. maxIndexes gets the index of each maximum, or -1 if it is
// 0.
func maxPool(dst []float32, maxIndexes []int32, src []float32, sideLength, channels int) {
	halfSide := sideLength / 2
	for y := range halfSide {
		for x := range halfSide {
			for c := range channels {
				maxValue, maxIndex := float32(0), int32(-1)
				for dy := range 2 {
					for dx := range 2 {
						i := ((2*y+dy)*sideLength+2*x+dx)*channels + c
						if src[i] > maxValue {
							maxValue, maxIndex = src[i], int32(i)
						}
					}
				}
				o := (y*halfSide+x)*channels + c
				dst[o], maxIndexes[o] = maxValue, maxIndex
			}
		}
	}
}

func (l *convLane) learn(pixels []float32, label int) {
	w := l.c.w

	// The last layer: the gradient of its biases, its weights and its inputs.
	lossGradient(l.out, l.forward(pixels), label)
	add(l.g[5], l.out, 1)
	for i, v := range l.p2 {
		if v > 0 {
			add(l.g[4][i*classes:][:classes], l.out, v)
			l.d2[i] = dot(w[4][i*classes:][:classes], l.out)
		}
	}

	// The second convolution: the pooling passes a gradient to the place of its maximum only.
	clear(l.d1)
	for i, at := range l.at2 {
		if at < 0 {
			continue
		}
		g, f := l.d2[i], i%second
		y, x := int(at)/second/side2, int(at)/second%side2
		l.g[3][f] += g
		for ky := range kernel {
			in, row := ((y+ky)*pool1+x)*firstFilters, (f*kernel+ky)*line
			add(l.g[2][row:][:line], l.p1[in:][:line], g)
			add(l.d1[in:][:line], w[2][row:][:line], g)
		}
	}

	// The first convolution, whose inputs are the pixels.
	for i, at := range l.at1 {
		g := l.d1[i]
		if at < 0 || g == 0 {
			continue
		}
		f := i % firstFilters
		y, x := int(at)/firstFilters/side1, int(at)/firstFilters%side1
		l.g[1][f] += g
		for ky := range kernel {
			for kx, v := range pixels[(y+ky)*Side+x:][:kernel] {
				l.g[0][(ky*kernel+kx)*firstFilters+f] += g * v
			}
		}
	}
}
