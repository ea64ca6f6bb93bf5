package digits

import (
	"context"
	"fmt"
	"math"
	"math/rand/v2"
	"slices"
	"strings"
	"sync"

	"inferplan/formats/seeded"
)

// Classifier is a trained member of the family.
type Classifier struct {
	Name string
	Seed uint64
	net  net
}

// familyMember says how a member of the family is trained.
type familyMember struct {
	name         string
	newNet       func(*rand.Rand) net
	epochs       int
	rate         float64
	shiftsImages bool // images are shifted by up to two pixels
}

var family = []familyMember{
	{"digits-4", hidden(4), 10, 0.015, false},
	{"digits-16", hidden(16), 8, 0.03, false},
	{"digits-64", hidden(64), 8, 0.05, false},
	{"digits-256", hidden(256), 8, 0.05, false},
	{"digits-conv", func(r *rand.Rand) net { return newConv(r) }, 8, 0.03, true},
}

// hidden returns a function that makes an untrained network with n hidden units.
func hidden(n int) func(*rand.Rand) net { return func(r *rand.Rand) net { return newMLP(n, r) } }

// Names lists the names of the family of classifiers that can be trained, by size.
func Names() []string {
	out := make([]string, len(family))
	for i := range family {
		out[i] = family[i].name
	}
	return out
}

// A batch of samples is divided among lanes, which run in parallel. The trained weights depend on these numbers.
const (
	lanes    = 4
	batch    = 32  // samples of a training step
	momentum = 0.9 // the part of the last step that the next one repeats
)

// Train trains the family member of a name on labelled images, by gradient descent with momentum. The seed sets the
// first weights, the order of the images and their shifts, so that the same call gives the same weights.
func Train(ctx context.Context, name string, seed uint64, images []Image) (*Classifier, error) {
	index := slices.IndexFunc(family, func(m familyMember) bool { return m.name == name })
	if index < 0 {
		return nil, fmt.Errorf("model %q: the family has %s", name, strings.Join(Names(), ", "))
	}
	if len(images) < batch {
		return nil, fmt.Errorf("training %s: %d images, expected at least %d", name, len(images), batch)
	}
	m := &family[index]
	rng := seeded.New(seed, "digits/"+name)
	c := &Classifier{Name: name, Seed: seed, net: m.newNet(rng)}
	t := newTrainer(c.net)

	// Shuffle the images in every epoch, and train on them batch after batch.
	order := make([]int, len(images))
	for i := range order {
		order[i] = i
	}
	steps, step := m.epochs*(len(images)/batch), 0
	for range m.epochs {
		rng.Shuffle(len(order), func(i, j int) { order[i], order[j] = order[j], order[i] })
		for b := range len(order) / batch {
			if err := ctx.Err(); err != nil {
				return nil, fmt.Errorf("training %s: %w", name, err)
			}
			for k, i := range order[b*batch : (b+1)*batch] {
				t.images[k] = images[i]
				if m.shiftsImages {
					t.shiftedImages[k] = shift(t.shiftedImages[k], images[i].Pixels, rng.IntN(5)-2, rng.IntN(5)-2)
					t.images[k].Pixels = t.shiftedImages[k]
				}
			}
			// The learning rate falls to zero along half a cosine.
			t.step(float32(m.rate / batch * (1 + math.Cos(math.Pi*float64(step)/float64(steps))) / 2))
			step++
		}
	}
	return c, nil
}

// trainer is a network in training.
type trainer struct {
	net           net
	lanes         [lanes]trainingLane
	velocity      [][]float32      // the last change of each weight
	images        [batch]Image     // the samples of the next step
	shiftedImages [batch][]float32 // their pixels, if they are shifted
}

// newTrainer returns a trainer of a network, with working memory for each lane.
func newTrainer(n net) *trainer {
	t := &trainer{net: n, velocity: zerosLike(n.weights())}
	for i := range t.lanes {
		t.lanes[i] = n.lane()
	}
	return t
}

// step changes the weights once: against the gradient of the loss over t.images, multiplied by rate, with momentum. A
// lane is a goroutine's share of the batch: every lanes-th sample.
func (t *trainer) step(rate float32) {
	// Each lane sums the gradients of its samples.
	var wg sync.WaitGroup
	for i, l := range t.lanes {
		wg.Go(func() {
			for _, g := range l.gradients() {
				clear(g)
			}
			for k := i; k < batch; k += lanes {
				l.learn(t.images[k].Pixels, t.images[k].Label)
			}
		})
	}
	wg.Wait()

	// Add the lanes' gradients in a fixed order, because sums of floating-point numbers depend on it.
	for p, w := range t.net.weights() {
		v := t.velocity[p]
		for i := range v {
			v[i] *= momentum
		}
		for _, l := range t.lanes {
			add(v, l.gradients()[p], -rate)
		}
		add(w, v, 1)
	}
}

// shift moves an image by dx and dy pixels over a background of 0. It writes to dst, which it makes if it is nil,
// and returns it.
func shift(dst, src []float32, dx, dy int) []float32 {
	if dst == nil {
		dst = make([]float32, Pixels)
	}
	clear(dst)
	for y := max(0, dy); y < min(Side, Side+dy); y++ {
		x0, x1 := max(0, dx), min(Side, Side+dx)
		copy(dst[y*Side+x0:y*Side+x1], src[(y-dy)*Side+x0-dx:])
	}
	return dst
}

// normalValues returns n random values of a normal distribution with mean 0 and standard deviation dev.
func normalValues(rng *rand.Rand, n int, dev float64) []float32 {
	out := make([]float32, n)
	for i := range out {
		out[i] = float32(rng.NormFloat64() * dev)
	}
	return out
}

func sqrt(n float64) float64 { return math.Sqrt(n) }

// filledSlice returns n values that are all v.
func filledSlice(n int, v float32) []float32 {
	out := make([]float32, n)
	for i := range out {
		out[i] = v
	}
	return out
}
