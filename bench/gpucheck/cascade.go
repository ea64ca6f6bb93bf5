package gpucheck

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"
)

// family is the cascade, small to large.
var family = []string{"digits-4", "digits-16", "digits-64", "digits-256", "digits-conv"}

// cascade plans and serves a family of classifiers.
func cascade(ctx context.Context, c *check, r *StepResult) error {
	dir := c.work("digits")
	if err := os.MkdirAll(dir, 0o755); err != nil {
		return err
	}
	members := family
	if c.Quick {
		members = family[:3]
	}
	samples := filepath.Join(dir, "samples.csv.gz")
	for _, n := range append(slices.Clone(members), "samples.csv.gz") {
		file := n
		if n != "samples.csv.gz" {
			file += ".onnx"
		}
		from, to := filepath.Join(c.Digits, file), filepath.Join(dir, file)
		if exists(to) {
			continue
		}
		if c.Digits != "" && exists(from) {
			data, err := os.ReadFile(from)
			if err != nil {
				return err
			}
			if err := os.WriteFile(to, data, 0o644); err != nil {
				return err
			}
			continue
		}
		args := []string{"models", "write", n, "--dir", dir}
		if file == n {
			args = []string{"models", "samples", to}
		}
		if _, err := c.plan(ctx, args...); err != nil {
			return err
		}
	}
	var paths []string
	for _, m := range members {
		paths = append(paths, filepath.Join(dir, m+".onnx"))
	}
	batches, budget, seconds, top := "1,2,4,8,16,32,64", "30s", 15, 4000
	if c.Quick {
		batches, budget, seconds, top = "1,4,16", "12s", 6, 200
	}
	device := c.Device
	if c.rehearsal() {
		device = "cpu"
	}
	args := append([]string{"profile"}, paths...)
	if _, err := c.plan(ctx, append(args, "--device", device, "--blocks", "1", "--batches", batches, "--budget", budget, "--records", samples, "-o", c.out("profile-digits.json"), "-q")...); err != nil {
		return err
	}
	r.wrote("profile-digits.json")
	if err := c.cluster("cascade-cluster.yaml", 1, 1, 0); err != nil {
		return err
	}
	text := fmt.Sprintf("format: inferplan.workload/v1\ncascade:\n  family: [%s]\n  slo: {latency: 100ms, percentile: p95}\n  qps: {max: %d, ranges: 4, distribution: zipf}\n", strings.Join(members, ", "), top)
	if err := os.WriteFile(c.work("cascade-workload.yaml"), []byte(text), 0o644); err != nil {
		return err
	}
	if _, err := c.plan(ctx, "solve", "--profile", c.out("profile-digits.json"), "--cluster", c.work("cascade-cluster.yaml"), "--workload", c.work("cascade-workload.yaml"),
		"-o", c.work("cascade.json"), "--force"); err != nil {
		return err
	}
	d, err := c.drive(ctx, "cascade.json", dir, 0.8, seconds)
	if err != nil {
		return err
	}
	r.Tables = append(r.Tables, Table{Title: "served at 0.8 of the largest rate", Header: drivenHeader, Rows: [][]string{d.row(0.8)}})
	if a := d.simulated.Accuracy; a != nil {
		r.note("accuracy by the plan's records, simulated: %.4f", *a)
	}
	p95 := d.measured.Latency.P95US
	r.verdict("p95 of the cascade, ms", "<= 100", p95.D().Seconds()*1e3, p95.D() <= 100*time.Millisecond)
	return nil
}
