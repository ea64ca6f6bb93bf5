package digits

import "math/rand/v2"

// The convolutional network: two layers of 5x5 filters, each followed by a
// rectifier and a maximum over 2x2, then one linear layer.
const (
	kernel        = 5
	firstFilters  = 12
	secondFilters = 24
	side1         = Side - kernel + 1             // 24
	pool1         = side1 / 2                     // 12
	side2         = pool1 - kernel + 1            // 8
	pool2         = side2 / 2                     // 4
	flatSize      = pool2 * pool2 * secondFilters // values that the linear layer reads
	line          = kernel * firstFilters         // values that a row of a filter of the second layer reads, next to each other
)

// conv is the convolutional network.
type conv struct {
	// The first layer's weights [ky][kx][filter] and its bias, the second's [filter][ky][kx][channel] and its bias, the
	// linear one's [y][x][filter][class] and its bias.
	w [][]float32
}

// newConv makes an untrained network with random weights, whose deviation keeps the variance of values from layer to
// layer.
func newConv(rng *rand.Rand) *conv {
	return &conv{[][]float32{
		normalValues(rng, kernel*kernel*firstFilters, 1/sqrt(kernel*kernel/2)), make([]float32, firstFilters),
		normalValues(rng, secondFilters*kernel*line, 1.4/sqrt(kernel*line)), make([]float32, secondFilters),
		normalValues(rng, flatSize*classes, 1/sqrt(flatSize)), make([]float32, classes)}}
}

func (c *conv) weights() [][]float32 { return c.w }

// convLane is the working memory of one lane, which trains on one sample at a time. Values are ordered [y][x][filter].
type convLane struct {
	c          *conv
	grads      [][]float32 // sums of gradients, shaped like the weights
	conv1      []float32   // the first layer before the maximum
	pooled1    []float32   // after the rectifier and the maximum
	poolGrad1  []float32   // gradient of pooled1
	maxAt1     []int32     // the places in conv1 of the maxima, -1 for a 0
	conv2      []float32   // the second layer, likewise
	pooled2    []float32
	poolGrad2  []float32
	maxAt2     []int32
	scores     []float32
	scoresGrad []float32
}

// lane allocates the working memory of one lane, which trains on one sample at a time.
func (c *conv) lane() trainingLane {
	f := func(n int) []float32 { return make([]float32, n) }
	const n1, n2 = pool1 * pool1 * firstFilters, flatSize
	return &convLane{c: c, grads: zerosLike(c.w),
		conv1: f(side1 * side1 * firstFilters), pooled1: f(n1), poolGrad1: f(n1), maxAt1: make([]int32, n1),
		conv2: f(side2 * side2 * secondFilters), pooled2: f(n2), poolGrad2: f(n2), maxAt2: make([]int32, n2),
		scores: f(classes), scoresGrad: f(classes)}
}

func (l *convLane) gradients() [][]float32 { return l.grads }

// forward computes the scores of the ten classes for an image, layer by layer. It leaves each layer's values in l,
// where learn reads them. Arrays are in the order [y][x][filter].
func (l *convLane) forward(pixels []float32) []float32 {
	w := l.c.w

	// The first layer (weights w[0], bias w[1]): every pixel that is not 0 is added to the outputs whose window it lies
	// in.
	for i := 0; i < len(l.conv1); i += firstFilters {
		copy(l.conv1[i:i+firstFilters], w[1])
	}
	for i, v := range pixels {
		if v == 0 {
			continue
		}
		iy, ix := i/Side, i%Side
		for ky := max(0, iy-side1+1); ky < kernel && ky <= iy; ky++ {
			for kx := max(0, ix-side1+1); kx < kernel && kx <= ix; kx++ {
				add(l.conv1[((iy-ky)*side1+ix-kx)*firstFilters:][:firstFilters], w[0][(ky*kernel+kx)*firstFilters:][:firstFilters], v)
			}
		}
	}
	maxPool(l.pooled1, l.maxAt1, l.conv1, side1, firstFilters)

	// The second layer (w[2], w[3]): every output is a sum over its window, row by row.
	for y := range side2 {
		for x := range side2 {
			for f := range secondFilters {
				s := w[3][f]
				for ky := range kernel {
					s += dot(w[2][(f*kernel+ky)*line:][:line], l.pooled1[((y+ky)*pool1+x)*firstFilters:][:line])
				}
				l.conv2[(y*side2+x)*secondFilters+f] = s
			}
		}
	}
	maxPool(l.pooled2, l.maxAt2, l.conv2, side2, secondFilters)

	// The linear layer (w[4], w[5]), in which rectified values of 0 have no part.
	copy(l.scores, w[5])
	for i, v := range l.pooled2 {
		if v > 0 {
			add(l.scores, w[4][i*classes:][:classes], v)
		}
	}
	return l.scores
}

// maxPool rectifies src, a square of [y][x][channel], and takes the maximum of each 2x2 pixels of a channel.
// maxIndexes gets the index of each maximum in src, or -1 if it is 0.
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

// learn adds the gradient of a sample's loss to the lane's gradients, from the last layer back to the first.
func (l *convLane) learn(pixels []float32, label int) {
	w := l.c.w

	// The last layer: the gradient of its biases, its weights and its inputs.
	lossGradient(l.scoresGrad, l.forward(pixels), label)
	add(l.grads[5], l.scoresGrad, 1)
	for i, v := range l.pooled2 {
		if v > 0 {
			add(l.grads[4][i*classes:][:classes], l.scoresGrad, v)
			l.poolGrad2[i] = dot(w[4][i*classes:][:classes], l.scoresGrad)
		}
	}

	// The second convolution: the pooling passes a gradient to the place of its maximum only. That is an index into
	// conv2, whose order is [y][x][filter], or -1 if the maximum is 0.
	clear(l.poolGrad1)
	for i, at := range l.maxAt2 {
		if at < 0 {
			continue
		}
		g, f := l.poolGrad2[i], i%secondFilters
		y, x := int(at)/secondFilters/side2, int(at)/secondFilters%side2
		l.grads[3][f] += g
		for ky := range kernel {
			in, row := ((y+ky)*pool1+x)*firstFilters, (f*kernel+ky)*line
			add(l.grads[2][row:][:line], l.pooled1[in:][:line], g)
			add(l.poolGrad1[in:][:line], w[2][row:][:line], g)
		}
	}

	// The first convolution, whose inputs are the pixels.
	for i, at := range l.maxAt1 {
		g := l.poolGrad1[i]
		if at < 0 || g == 0 {
			continue
		}
		f := i % firstFilters
		y, x := int(at)/firstFilters/side1, int(at)/firstFilters%side1
		l.grads[1][f] += g
		for ky := range kernel {
			for kx, v := range pixels[(y+ky)*Side+x:][:kernel] {
				l.grads[0][(ky*kernel+kx)*firstFilters+f] += g * v
			}
		}
	}
}
