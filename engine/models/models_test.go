package models

import (
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"inferplan/engine/graph"
)

func TestEveryModelOfCatalogueOpens(t *testing.T) {
	nodes := map[string]int{"squeezenet": 66, "shufflenet": 203, "resnet50": 176, "inception_v1": 143, "inception_v2": 371, "densenet121": 668,
		"bvlc_alexnet": 24, "zfnet512": 22, "vgg19": 46, "ocr_det": 330, "ocr_rec": 425}
	for _, name := range Names() {
		if strings.HasPrefix(name, "digits-") && name != "digits-4" {
			continue // trained when opened: a minute for all; package digits tests them
		}
		m, err := Open(name, Options{})
		if errors.Is(err, ErrAbsent) {
			t.Skip("the model files are not set up: run `make setup`")
		}
		if err != nil {
			t.Errorf("%s: %v", name, err)
			continue
		}
		inputs := 1
		if name == "bert" {
			inputs = 2 // tokens and mask
		}
		want, fetched := nodes[name]
		if m.Name != name || fetched && m.Nodes() != want || m.Nodes() == 0 || m.Weightless() || len(m.Inputs) != inputs {
			t.Errorf("%s: %q with %d nodes, inputs %v, weightless %v", name, m.Name, m.Nodes(), m.Inputs, m.Weightless())
		}
	}
}

// What Write leaves are ordinary ONNX files with weights, the same for the
// same seed.
func TestWriteIsTheSameForTheSameSeed(t *testing.T) {
	bytesOf := func(seed uint64) []byte {
		paths, err := Write(filepath.Join(t.TempDir(), "models"), seed, "squeezenet")
		if errors.Is(err, ErrAbsent) {
			t.Skip("the model files are not set up: run `make setup`")
		}
		if err != nil {
			t.Fatal(err)
		}
		data, err := os.ReadFile(paths[0])
		if err != nil {
			t.Fatal(err)
		}
		return data
	}
	a, b, c := bytesOf(1), bytesOf(1), bytesOf(2)
	if string(a) != string(b) || string(a) == string(c) {
		t.Error("the bytes do not follow the seed")
	}
	m, err := graph.Read("squeezenet.onnx", a, graph.Options{Seed: 5})
	if err != nil {
		t.Fatal(err)
	}
	if m.Weightless() || m.Identity != m.SHA256 || len(a) < 4<<20 {
		t.Errorf("%d bytes, weightless %v, identity %s", len(a), m.Weightless(), m.Identity)
	}
}

func TestUnknownAndAbsentModelsAreErrors(t *testing.T) {
	if _, err := Open("lenet", Options{}); err == nil || !strings.Contains(err.Error(), "squeezenet") {
		t.Errorf("%v", err)
	}
	t.Setenv(DirEnv, t.TempDir())
	if _, err := Open("squeezenet", Options{}); !errors.Is(err, ErrAbsent) || !strings.Contains(err.Error(), "make setup") {
		t.Errorf("an empty folder: %v", err)
	}
}
