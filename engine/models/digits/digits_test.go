package digits

import (
	"context"
	"errors"
	"math"
	"math/rand/v2"
	"os"
	"path/filepath"
	"runtime"
	"slices"
	"testing"
	"time"

	"inferplan/engine"
	"inferplan/engine/ort"
)

func images(t testing.TB) *Data {
	t.Helper()
	d, err := Load(filepath.Join("..", "..", "..", "third_party", "digits", "files"))
	if errors.Is(err, ErrAbsent) {
		t.Skipf("the images are not here (make setup fetches them): %v", err)
	}
	if err != nil {
		t.Fatal(err)
	}
	return d
}

// noise are images without meaning, for what needs none.
func noise(n int) []Image {
	rng := rand.New(rand.NewPCG(1, 2))
	out := make([]Image, n)
	for i := range out {
		out[i] = Image{make([]float32, Pixels), i % classes}
		for k := range 150 {
			out[i].Pixels[(k*37+i*11+rng.IntN(30))%Pixels] = rng.Float32()
		}
	}
	return out
}

// Gradients are those of the loss, by finite differences.
func TestGradientsMatchFiniteDifferences(t *testing.T) {
	rng := rand.New(rand.NewPCG(3, 4))
	img := noise(1)[0]
	for name, n := range map[string]net{"mlp": newMLP(8, rng), "conv": newConv(rng)} {
		l := n.lane()
		l.learn(img.Pixels, img.Label)
		loss := func() float64 {
			s := l.forward(img.Pixels)
			sum := 0.0
			for _, v := range s {
				sum += math.Exp(float64(v))
			}
			return math.Log(sum) - float64(s[img.Label])
		}
		for p, w := range n.weights() {
			g := l.gradients()[p]
			// Along the gradient the loss grows by its length.
			length := 0.0
			for _, v := range g {
				length += float64(v) * float64(v)
			}
			length = math.Sqrt(length)
			if length == 0 {
				t.Errorf("%s, weights %d: no gradient", name, p)
				continue
			}
			const h = 2e-3
			old := slices.Clone(w)
			move := func(by float64) float64 {
				for i := range w {
					w[i] = old[i] + float32(by*float64(g[i])/length)
				}
				return loss()
			}
			slope := (move(h) - move(-h)) / (2 * h)
			copy(w, old)
			if math.Abs(slope-length) > 0.02*length+1e-3 {
				t.Errorf("%s, weights %d: the loss grows by %.5f, the gradient says %.5f", name, p, slope, length)
			}
		}
	}
}

// enough are images for what holds of any: fewer under the race detector, where
// arithmetic takes fifty times as long.
func enough() []Image {
	if testing.Short() {
		return noise(32)
	}
	return noise(64)
}

// The seed alone makes the weights.
func TestTrainingIsDeterministic(t *testing.T) {
	data := enough()
	train := func(name string, seed uint64) []byte {
		c, err := Train(context.Background(), name, seed, data)
		if err != nil {
			t.Fatal(err)
		}
		m, err := c.Model()
		if err != nil {
			t.Fatal(err)
		}
		b, err := m.Encode()
		if err != nil {
			t.Fatal(err)
		}
		return b
	}
	for _, name := range []string{"digits-16", "digits-conv"} {
		one := train(name, 1)
		before := runtime.GOMAXPROCS(1)
		again := train(name, 1)
		runtime.GOMAXPROCS(before)
		if !slices.Equal(one, again) {
			t.Errorf("%s: other bytes with one processor", name)
		}
		if slices.Equal(one, train(name, 2)) {
			t.Errorf("%s: the same bytes with another seed", name)
		}
	}
}

// ONNX Runtime computes what training computed, sample by sample.
func TestModelsComputeTheNetworks(t *testing.T) {
	eng, err := ort.Open("")
	if errors.Is(err, engine.ErrNoLibrary) {
		t.Skipf("ONNX Runtime is not here (make setup fetches it): %v", err)
	}
	if err != nil {
		t.Fatal(err)
	}
	defer eng.Close()
	data := enough()
	for _, name := range []string{"digits-16", "digits-conv"} {
		c, err := Train(context.Background(), name, 1, data)
		if err != nil {
			t.Fatal(err)
		}
		l := c.net.lane()
		for k, got := range scores(t, eng, c, data[:3]) {
			want := make([]float64, classes)
			if name != "digits-conv" {
				for i, v := range l.forward(data[k].Pixels) {
					want[i] = float64(v)
				}
			} else {
				p := make([]float32, classes)
				for _, degrees := range turns {
					turned := make([]float32, Pixels)
					for from, row := 0, rotationMatrix(degrees); from < Pixels; from++ {
						add(turned, row[from*Pixels:][:Pixels], data[k].Pixels[from])
					}
					for dy := -reach; dy <= reach; dy++ {
						for dx := -reach; dx <= reach; dx++ {
							lossGradient(p, l.forward(shift(nil, turned, dx, dy)), 0)
							p[0]++
							for i := range want {
								want[i] += float64(p[i]) / float64(viewCount)
							}
						}
					}
				}
			}
			for i := range want {
				if math.Abs(got[i]-want[i]) > 1e-4 {
					t.Fatalf("%s, sample %d, class %d: %v, expected %v", name, k, i, got[i], want[i])
				}
			}
		}
	}
}

func scores(t testing.TB, eng *ort.Engine, c *Classifier, samples []Image) [][]float64 {
	t.Helper()
	m, err := c.Model()
	if err != nil {
		t.Fatal(err)
	}
	onnx, err := m.Encode()
	if err != nil {
		t.Fatal(err)
	}
	in, err := engine.NewHostTensor(m.Inputs[0], len(samples), nil)
	if err != nil {
		t.Fatal(err)
	}
	for i := range samples {
		for k, v := range samples[i].Pixels {
			putFloat(in.Bytes(), i*Pixels+k, v)
		}
	}
	got, err := eng.Eval(context.Background(), onnx, []engine.Tensor{in}, []string{"scores"}, engine.Options{}, -1)
	if err != nil {
		t.Fatal(err)
	}
	out := make([][]float64, len(samples))
	for i := range out {
		for k := range classes {
			out[i] = append(out[i], float64(getFloat(got["scores"].Data, i*classes+k)))
		}
	}
	return out
}

// The family gets better with size, and the training stays short. All of it
// takes a minute: with INFERPLAN_LONG the convolutional network too.
func TestLargerModelsAreMoreAccurate(t *testing.T) {
	if testing.Short() {
		t.Skip("trains on thousands of images: run without -short, as make test does without the race detector")
	}
	data := images(t)
	if len(data.Train)+len(data.Samples) != 10000 || len(data.Samples) < 4990 {
		t.Fatalf("%d images to train on, %d samples", len(data.Train), len(data.Samples))
	}
	names := []string{"digits-4", "digits-16"}
	if os.Getenv("INFERPLAN_LONG") != "" {
		names = Names()
	}
	last := 0.0
	for _, name := range names {
		start := time.Now()
		c, err := Train(context.Background(), name, 1, data.Train)
		if err != nil {
			t.Fatal(err)
		}
		took := time.Since(start)
		l, right := c.net.lane(), 0
		for _, s := range data.Samples {
			got := l.forward(s.Pixels)
			if slices.Index(got, slices.Max(got)) == s.Label {
				right++
			}
		}
		accuracy := float64(right) / float64(len(data.Samples))
		t.Logf("%s: %.4f of %d samples, trained in %v", name, accuracy, len(data.Samples), took.Round(time.Millisecond))
		if accuracy <= last || accuracy < 0.7 {
			t.Errorf("%s: %.4f of the samples right, the smaller one %.4f", name, accuracy, last)
		}
		last = accuracy
	}
}

// The lanes of a training step write nothing in common: for the race detector, which runs it alone.
func TestLanesAtOnce(t *testing.T) {
	for _, m := range family {
		if m.name != "digits-4" && m.name != "digits-conv" {
			continue
		}
		tr := newTrainer(m.newNet(rand.New(rand.NewPCG(1, 2))))
		copy(tr.images[:], noise(batch))
		before := slices.Clone(tr.net.weights()[0])
		tr.step(0.1)
		if slices.Equal(before, tr.net.weights()[0]) {
			t.Errorf("%s: a step moves no weight", m.name)
		}
	}
}
