package profiler

import (
	"errors"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
)

func TestFindModels(t *testing.T) {
	for _, c := range []struct {
		name  string
		files []string
		want  []string
		says  string
	}{
		{"nothing", nil, nil, "no ONNX model"},
		{"other files", []string{"models/readme.txt", "a.onnx.txt"}, nil, "plan profile MODEL.onnx"},
		{"in models", []string{"models/b.onnx", "models/a.onnx", "models/c.txt"}, []string{"models/a.onnx", "models/b.onnx"}, ""},
		{"here", []string{"b.onnx", "a.onnx", "models/readme.txt"}, []string{"a.onnx", "b.onnx"}, ""},
		{"a folder of that name", []string{"x.onnx/file", "b.onnx"}, []string{"b.onnx"}, ""},
		{"both", []string{"b.onnx", "models/a.onnx"}, nil, "two places"},
	} {
		t.Run(c.name, func(t *testing.T) {
			dir := t.TempDir()
			for _, f := range c.files {
				p := filepath.Join(dir, f)
				if err := os.MkdirAll(filepath.Dir(p), 0o755); err != nil {
					t.Fatal(err)
				}
				if err := os.WriteFile(p, nil, 0o644); err != nil {
					t.Fatal(err)
				}
			}
			got, err := FindModels(dir)
			if c.says != "" {
				if !errors.Is(err, ErrInput) || !strings.Contains(err.Error(), c.says) {
					t.Fatalf("error %v, expected one with %q", err, c.says)
				}
				return
			}
			if err != nil {
				t.Fatal(err)
			}
			for i := range c.want {
				c.want[i] = filepath.Join(dir, c.want[i])
			}
			if !slices.Equal(got, c.want) {
				t.Errorf("got %v, expected %v", got, c.want)
			}
		})
	}
}
