package models

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"inferplan/engine/graph"
	"inferplan/engine/models/digits"
)

// ErrAbsent is returned when the model files have not been fetched.
var ErrAbsent = errors.New("models are not set up: type `make setup`")

// DirEnv names the variable that points at the folder with the model files.
const DirEnv = "INFERPLAN_MODEL_FILES"

// DigitsEnv names the variable that points at the folder with the images of
// digits.
const DigitsEnv = "INFERPLAN_DIGITS"

// DefaultSeed is the seed of the weights that the demo and the tests use.
const DefaultSeed = 1

// entry is a model of the catalogue: it is read from a file, or built.
type entry struct {
	name, file string
	dims       []int64                                 // sizes of its input, batch first, if the file leaves them open
	build      func(seed uint64) (*graph.Model, error) // makes the model; nil for a model in a file
}

// The CNNs take 3x224x224 images. The OCR models have dynamic sizes; these are
// the ones used here.
var catalogue = []entry{
	{"squeezenet", "light_squeezenet.onnx", nil, nil},
	{"shufflenet", "light_shufflenet.onnx", nil, nil},
	{"resnet50", "light_resnet50.onnx", nil, nil},
	{"inception_v1", "light_inception_v1.onnx", nil, nil},
	{"inception_v2", "light_inception_v2.onnx", nil, nil},
	{"densenet121", "light_densenet121.onnx", nil, nil},
	{"bvlc_alexnet", "light_bvlc_alexnet.onnx", nil, nil},
	{"zfnet512", "light_zfnet512.onnx", nil, nil},
	{"vgg19", "light_vgg19.onnx", nil, nil},
	{"ocr_det", "ch_PP-OCRv4_det_infer.onnx", []int64{1, 3, 320, 640}, nil},
	{"ocr_rec", "ch_PP-OCRv4_rec_infer.onnx", []int64{1, 3, 48, 320}, nil},
	{"ocr_cls", "ch_ppocr_mobile_v2.0_cls_infer.onnx", []int64{1, 3, 48, 192}, nil},
	{"bert", "", nil, func(seed uint64) (*graph.Model, error) { return graph.BERT(graph.TransformerConfig{Seed: seed}) }},
	{"vit", "", nil, func(seed uint64) (*graph.Model, error) { return graph.ViT(graph.TransformerConfig{Seed: seed}) }},
	{"embedder", "", nil, func(seed uint64) (*graph.Model, error) { return graph.Projection(4096, 384, seed) }},
	{"mlp-16", "", nil, mlp(16)},
	{"mlp-64", "", nil, mlp(64)},
	{"mlp-256", "", nil, mlp(256)},
	{"digits-4", "", nil, trainDigits("digits-4")},
	{"digits-16", "", nil, trainDigits("digits-16")},
	{"digits-64", "", nil, trainDigits("digits-64")},
	{"digits-256", "", nil, trainDigits("digits-256")},
	{"digits-conv", "", nil, trainDigits("digits-conv")},
}

// Digits loads the images that the digits family is trained on, and its labelled samples.
func Digits() (*digits.Data, error) {
	dir := os.Getenv(DigitsEnv)
	if dir == "" {
		top, err := sourceRoot()
		if err != nil {
			return nil, err
		}
		dir = filepath.Join(top, "third_party", "digits", "files")
	}
	d, err := digits.Load(dir)
	if errors.Is(err, digits.ErrAbsent) {
		return nil, fmt.Errorf("%w: %w", ErrAbsent, err)
	}
	return d, err
}

// trainDigits returns a function that trains a member of the digits family. That takes seconds, for the
// convolutional one up to a minute.
func trainDigits(name string) func(uint64) (*graph.Model, error) {
	return func(seed uint64) (*graph.Model, error) {
		d, err := Digits()
		if err != nil {
			return nil, err
		}
		c, err := digits.Train(context.Background(), name, seed, d.Train)
		if err != nil {
			return nil, err
		}
		return c.Model()
	}
}

// mlp returns a function that builds a perceptron with one hidden layer.
func mlp(hidden int) func(uint64) (*graph.Model, error) {
	return func(seed uint64) (*graph.Model, error) { return graph.MLP(hidden, seed) }
}

// Names returns the names in the catalogue, the CNNs first.
func Names() []string {
	out := make([]string, len(catalogue))
	for i, e := range catalogue {
		out[i] = e.name
	}
	return out
}

// Dir finds the folder with the model files: INFERPLAN_MODEL_FILES, else
// third_party/models/files of a source tree above the executable or the
// working directory.
func Dir() (string, error) {
	if d := os.Getenv(DirEnv); d != "" {
		return d, nil
	}
	root, err := sourceRoot()
	if err != nil {
		return "", err
	}
	return filepath.Join(root, "third_party", "models", "files"), nil
}

// sourceRoot returns the root of this project's source tree: the first folder with third_party/models in it, from
// the executable's folder or the working directory upwards.
func sourceRoot() (string, error) {
	var starts []string
	if exe, err := os.Executable(); err == nil {
		starts = append(starts, filepath.Dir(exe))
	}
	if wd, err := os.Getwd(); err == nil {
		starts = append(starts, wd)
	}
	for _, dir := range starts {
		for {
			if st, err := os.Stat(filepath.Join(dir, "third_party", "models")); err == nil && st.IsDir() {
				return dir, nil
			}
			parent := filepath.Dir(dir)
			if parent == dir {
				break
			}
			dir = parent
		}
	}
	return "", ErrAbsent
}

// Options are the options of Open.
type Options struct {
	Seed uint64 // the seed of the CNNs' weights; zero means DefaultSeed
	// Dims replaces the OCR models' sizes, batch first.
	Dims []int64
}

// Open reads a model of the catalogue. Weights are made when a slice is
// written, so that even VGG-19 opens at once.
func Open(name string, o Options) (*graph.Model, error) {
	o.Seed = cmp.Or(o.Seed, DefaultSeed)
	i := slices.IndexFunc(catalogue, func(e entry) bool { return e.name == name })
	if i < 0 {
		return nil, fmt.Errorf("model %q is not in the catalogue: it has %s", name, strings.Join(Names(), ", "))
	}
	e := &catalogue[i]
	if e.build != nil {
		return e.build(o.Seed)
	}
	dir, err := Dir()
	if err != nil {
		return nil, err
	}
	path := filepath.Join(dir, e.file)
	if _, err := os.Stat(path); err != nil {
		return nil, fmt.Errorf("%s: %w", path, ErrAbsent)
	}
	g := graph.Options{Name: name, Seed: o.Seed}
	if o.Dims == nil {
		o.Dims = e.dims
	}
	if o.Dims != nil {
		g.Dims = map[string][]int64{"": o.Dims}
	}
	return graph.Open(path, g)
}

// Write writes models with their weights as ordinary ONNX files NAME.onnx into
// a folder, which is made, and returns the paths.
func Write(dir string, seed uint64, names ...string) ([]string, error) {
	var out []string
	for _, name := range names {
		m, err := Open(name, Options{Seed: seed})
		if err != nil {
			return nil, err
		}
		if err := os.MkdirAll(dir, 0o755); err != nil { // only now is there something to write
			return nil, fmt.Errorf("write models: %w", err)
		}
		path := filepath.Join(dir, name+".onnx")
		if err := m.WriteFile(path); err != nil {
			return nil, err
		}
		out = append(out, path)
	}
	return out, nil
}
