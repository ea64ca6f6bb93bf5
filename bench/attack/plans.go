package main

import (
	"context"
	"fmt"
	"math"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"time"
)

// batches of the models below, measured.
var batches = []int{1, 2, 4, 8}

// profileOf is a profile of models with one block each: a batch of b takes base and
// a tenth more for each further sample.
func profileOf(models map[string]time.Duration) string {
	var list []string
	for _, name := range sortedKeys(models) {
		tensor := `"inputs":[{"name":"x","dtype":"FP32","shape":[-1,4]}]`
		if name == "words" {
			tensor = `"inputs":[{"name":"x","dtype":"INT64","shape":[-1,8]}]`
		}
		var runs []string
		for _, b := range batches {
			us := math.Round(float64(models[name].Microseconds()) * (1 + float64(b-1)/10))
			runs = append(runs, fmt.Sprintf(`{"device":"L4","share":1,"batch":%d,"whole":{"wall_us":%g},"blocks":[{"wall_us":%g}]}`, b, us, us))
		}
		list = append(list, fmt.Sprintf(`{"model":%q,%s,"outputs":[{"name":"y","dtype":"FP32","shape":[-1,2]}],"blocks":[{"name":"b"}],"measurements":[%s]}`, name, tensor, strings.Join(runs, ",")))
	}
	return `{"format":"inferplan.profile/v1","devices":[{"device":"L4"}],"models":[` + strings.Join(list, ",\n") + "]}\n"
}

// solvePlan plans models on so many devices and returns the plan's path.
func (t *target) solvePlan(ctx context.Context, name string, models map[string]time.Duration, devices int, slo time.Duration) (string, error) {
	dir := filepath.Join(t.dir, name)
	if err := os.MkdirAll(dir, 0o700); err != nil {
		return "", err
	}
	workload := "format: inferplan.workload/v1\nmodels:\n"
	for _, m := range sortedKeys(models) {
		workload += fmt.Sprintf("- {model: %s, slo: %s, weight: 1}\n", m, slo)
	}
	for file, text := range map[string]string{
		"profile.json": profileOf(models), "workload.yaml": workload + "arrivals: {process: poisson}\n",
		"cluster.yaml": fmt.Sprintf("format: inferplan.cluster/v1\npools:\n- {device: L4, count: %d}\n", devices),
	} {
		if err := os.WriteFile(filepath.Join(dir, file), []byte(text), 0o600); err != nil {
			return "", err
		}
	}
	cmd := exec.CommandContext(ctx, t.plan, "solve", "--margin", "0.4", "-o", "plan.json")
	cmd.Dir = dir
	if out, err := cmd.CombinedOutput(); err != nil {
		return "", fmt.Errorf("planning %s: %w\n%s", name, err, out)
	}
	return filepath.Join(dir, "plan.json"), nil
}

// smallPlan serves m and words on some devices.
func (t *target) smallPlan(ctx context.Context, devices int, infer, slo time.Duration) (string, error) {
	return t.solvePlan(ctx, fmt.Sprintf("small-%d-%v-%v", devices, infer, slo), map[string]time.Duration{"m": infer, "words": infer}, devices, slo)
}

// secret writes a file that only this user may read.
func (t *target) secret(name string) (string, error) {
	path := filepath.Join(t.dir, name)
	return path, os.WriteFile(path, []byte("0123456789abcdef0123456789abcdef\n"), 0o600)
}
