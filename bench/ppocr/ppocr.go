package ppocr

import (
	"context"
	"fmt"
	"path/filepath"
	"time"

	"inferplan/engine/models"
	"inferplan/engine/ort"
	"inferplan/formats"
	"inferplan/profiler"
)

// Names are the detector, the classifier of orientation and the recogniser.
var Names = []string{"ocr_det", "ocr_cls", "ocr_rec"}

// Measure writes the models into a folder, the detector for images of a size, and
// measures them whole, in batches of 1, 2 and 4.
func Measure(ctx context.Context, dir string, width, height int64, budget time.Duration) (*formats.Profile, error) {
	eng, err := ort.Open("")
	if err != nil {
		return nil, err
	}
	defer eng.Close()
	sizes := map[string][]int64{"ocr_det": {1, 3, height, width}, "ocr_cls": {1, 3, 48, 192}, "ocr_rec": {1, 3, 48, 320}}
	var files []string
	dims := map[string]map[string][]int64{}
	for _, name := range Names {
		m, err := models.Open(name, models.Options{Dims: sizes[name]})
		if err == nil {
			files, dims[name] = append(files, filepath.Join(dir, name+".onnx")), map[string][]int64{"": sizes[name]}
			err = m.WriteFile(files[len(files)-1])
		}
		if err != nil {
			return nil, err
		}
	}
	p, err := profiler.Run(ctx, profiler.Options{Models: files, Device: "cpu", Batches: []int{1, 2, 4}, Blocks: 1, Engine: eng, Dims: dims, FP16Samples: -1, Budget: budget})
	if err != nil {
		return nil, fmt.Errorf("measuring the models: %w", err)
	}
	return p, nil
}
