package profiler

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
)

// FindModels lists the models that `plan profile` measures without arguments: dir/models/*.onnx or, if the folder
// models does not exist or is empty, dir/*.onnx, by name. If both have models, or neither has, it returns an error
// that says what to type.
func FindModels(dir string) ([]string, error) {
	inModels, err := onnxFiles(filepath.Join(dir, "models"))
	if err != nil {
		return nil, err
	}
	inFolder, err := onnxFiles(dir)
	if err != nil {
		return nil, err
	}
	switch {
	case len(inModels) > 0 && len(inFolder) > 0:
		return nil, inputError("models in two places: %s and %s: name the ones to measure, for example plan profile models/*.onnx", inModels[0], inFolder[0])
	case len(inModels) > 0:
		return inModels, nil
	case len(inFolder) > 0:
		return inFolder, nil
	}
	return nil, inputError("no ONNX model in %s or %s: name a file, plan profile MODEL.onnx", filepath.Join(dir, "models"), dir)
}

// onnxFiles lists the .onnx files of a folder by name. A folder that does not exist has none.
func onnxFiles(dir string) ([]string, error) {
	entries, err := os.ReadDir(dir) // sorted by name
	if os.IsNotExist(err) {
		return nil, nil
	}
	if err != nil {
		return nil, fmt.Errorf("look for models: %w", err)
	}
	var out []string
	for _, e := range entries {
		if strings.HasSuffix(e.Name(), ".onnx") && !e.IsDir() {
			out = append(out, filepath.Join(dir, e.Name()))
		}
	}
	return out, nil
}
