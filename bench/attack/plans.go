package main

import (
	"context"
	"fmt"
	"maps"
	"math"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"inferplan/bench/llm/made"
	"inferplan/bench/served"
	"inferplan/formats"
	"inferplan/formats/document"
)

// profileOf returns a profile of models with one block each: a batch of b takes the model's time and
// a tenth more for each further sample.
func profileOf(models map[string]time.Duration) string {
	var list []string
	for _, name := range slices.Sorted(maps.Keys(models)) {
		tensor := `"inputs":[{"name":"x","dtype":"FP32","shape":[-1,4]}]`
		if name == "words" {
			tensor = `"inputs":[{"name":"x","dtype":"INT64","shape":[-1,8]}]`
		}
		var runs []string
		for _, b := range []int{1, 2, 4, 8} {
			us := math.Round(float64(models[name].Microseconds()) * (1 + float64(b-1)/10))
			runs = append(runs, fmt.Sprintf(`{"device":"L4","share":1,"batch":%d,"whole":{"wall_us":%g},"blocks":[{"wall_us":%g}]}`, b, us, us))
		}
		list = append(list, fmt.Sprintf(`{"model":%q,%s,"outputs":[{"name":"y","dtype":"FP32","shape":[-1,2]}],"blocks":[{"name":"b"}],"measurements":[%s]}`, name, tensor, strings.Join(runs, ",")))
	}
	return `{"format":"inferplan.profile/v1","devices":[{"device":"L4"}],"models":[` + strings.Join(list, ",\n") + "]}\n"
}

// solve plans a workload on so many devices, in a folder of a name, and returns the plan's path.
func (a *attack) solve(ctx context.Context, name string, models map[string]time.Duration, workload string, devices int, flags ...string) (string, error) {
	dir := filepath.Join(a.Folder, name)
	if err := os.MkdirAll(dir, 0o700); err != nil {
		return "", err
	}
	for file, text := range map[string]string{
		"profile.json": profileOf(models), "workload.yaml": "format: inferplan.workload/v1\n" + workload,
		"cluster.yaml": fmt.Sprintf("format: inferplan.cluster/v1\npools:\n- {device: L4, count: %d}\n", devices),
	} {
		if err := os.WriteFile(filepath.Join(dir, file), []byte(text), 0o600); err != nil {
			return "", err
		}
	}
	p := served.Program{Path: a.Path, Folder: dir}
	return filepath.Join(dir, "plan.json"), p.Run(ctx, append([]string{"solve", "-o", "plan.json"}, flags...)...)
}

// solveModels plans models under an SLO.
func (a *attack) solveModels(ctx context.Context, name string, models map[string]time.Duration, devices int, slo time.Duration) (string, error) {
	workload := "models:\n"
	for _, m := range slices.Sorted(maps.Keys(models)) {
		workload += fmt.Sprintf("- {model: %s, slo: %s, weight: 1}\n", m, slo)
	}
	return a.solve(ctx, name, models, workload+"arrivals: {process: poisson}\n", devices, "--margin", "0.4")
}

// smallPlan plans m and words on some devices.
func (a *attack) smallPlan(ctx context.Context, devices int, infer, slo time.Duration) (path string, plan *formats.Plan, err error) {
	path, err = a.solveModels(ctx, fmt.Sprintf("small-%d-%v-%v", devices, infer, slo), map[string]time.Duration{"m": infer, "words": infer}, devices, slo)
	if err == nil {
		plan, err = formats.ReadPlan(path)
	}
	return path, plan, err
}

// Of plans of queues: the model, and how many sequences an instance takes at once.
const (
	textModel = "a"
	sequences = 4
)

// queuePlan writes a plan of queues for so many instances into a folder.
func queuePlan(dir string, instances int) (string, error) {
	path := filepath.Join(dir, "plan.json")
	_, err := document.WriteFile(path, made.Plan(textModel, instances, sequences))
	return path, err
}
