package profiler

import (
	"context"
	"errors"
	"os"
	"path/filepath"
	"testing"
	"time"

	"inferplan/engine"
	"inferplan/engine/models"
	"inferplan/engine/ort"
	"inferplan/formats"
)

// realEngine opens ONNX Runtime, or skips.
func realEngine(t testing.TB) *ort.Engine {
	t.Helper()
	eng, err := ort.Open("")
	if errors.Is(err, engine.ErrNoLibrary) {
		t.Skipf("needs ONNX Runtime, run `make setup`: %v", err)
	}
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := eng.Close(); err != nil {
			t.Error(err)
		}
	})
	return eng
}

// realModels writes models of the catalogue with their weights, or skips.
func realModels(t testing.TB, names ...string) []string {
	t.Helper()
	paths, err := models.Write(t.TempDir(), models.DefaultSeed, names...)
	if errors.Is(err, models.ErrAbsent) {
		t.Skipf("needs the model files, run `make setup`: %v", err)
	}
	if err != nil {
		t.Fatal(err)
	}
	return paths
}

func TestSqueezeNet(t *testing.T) {
	eng := realEngine(t)
	paths := realModels(t, "squeezenet")
	out := filepath.Join(t.TempDir(), "profile.json")
	var est Estimate
	o := Options{
		Models: paths, Device: "cpu", Batches: []int{1, 2}, Engine: eng, Out: out,
		Precision:  Precision{HalfWidth: 0.05, Floor: 2 * time.Microsecond, MinRounds: 12, MaxRounds: 24},
		OnEstimate: func(e Estimate) error { est = e; return nil },
		Progress: func(e Event) {
			if e.Stage != StageSample {
				t.Logf("%+v", e)
			}
		},
	}
	begin := time.Now()
	p, err := Run(context.Background(), o)
	if err != nil {
		t.Fatal(err)
	}
	t.Logf("%v, estimate %+v", time.Since(begin), est)
	data, _ := formats.Marshal(p)
	if os.Getenv("SHOW") != "" {
		t.Logf("%s", data)
	}
}
