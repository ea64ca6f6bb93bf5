package main

import (
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"

	"inferplan/testkit/stepstest"
)

// The images of lines have the size that the models of examples/ocr are measured for.
const (
	lineWidth  = 640
	lineHeight = 320
)

// texts are lines that requests bring; one in twenty has none, as the workload says.
var texts = []string{"inference 2026", "GPU latency", "batch size 8", "deadline", "request 41", "goodput", "queue depth", "replica", "margin .05", "two cores",
	"", "percentile", "arrivals", "time shared", "profile", "simulated", "served", "promised", "workload", "cluster"}

// lines writes a folder of requests of drawn lines, a third of them upside down.
func lines(dir string) error {
	if err := os.MkdirAll(dir, 0o755); err != nil {
		return err
	}
	for i, text := range texts {
		pixels, err := stepstest.Line(text, lineWidth, lineHeight, 60, 160, 40, i%3 == 1)
		if err != nil {
			return err
		}
		values := make([]int, len(pixels))
		for k, v := range pixels {
			values[k] = int(v)
		}
		body, err := json.Marshal(map[string]any{"inputs": []any{map[string]any{"name": "image", "datatype": "UINT8", "shape": []int{1, lineHeight, lineWidth, 3}, "data": values}}})
		if err == nil {
			err = os.WriteFile(filepath.Join(dir, fmt.Sprintf("%02d.json", i)), body, 0o644)
		}
		if err != nil {
			return fmt.Errorf("writing requests of lines: %w", err)
		}
	}
	return nil
}
