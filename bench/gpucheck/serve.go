package gpucheck

import (
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"math"
	"net"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"runtime"
	"slices"
	"strings"
	"syscall"
	"time"

	"inferplan/engine"
	"inferplan/executor"
	"inferplan/formats"
)

// server is a plan being served by a process.
type server struct {
	cmd  *exec.Cmd
	http string
	done chan error
}

// startServer serves a plan and waits until it is ready.
func (c *check) startServer(ctx context.Context, plan, models string, more ...string) (*server, error) {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		return nil, err
	}
	address := l.Addr().String()
	l.Close()
	args := append([]string{"serve", plan, "--models", models, "--http", address, "--grpc", "off", "--metrics", "off", "-q"}, more...)
	if c.rehearsal() {
		args = append(args, "--share-cpus")
	}
	fmt.Fprintf(c.log(), "$ plan %s &\n", strings.Join(args, " "))
	s := &server{cmd: exec.Command(c.Self, args...), http: "http://" + address, done: make(chan error, 1)}
	s.cmd.Dir, s.cmd.Stdout, s.cmd.Stderr = c.Work, c.log(), c.log()
	if err := s.cmd.Start(); err != nil {
		return nil, err
	}
	go func() { s.done <- s.cmd.Wait() }()
	client := http.Client{Timeout: 2 * time.Second}
	for {
		if r, err := client.Get(s.http + "/v2/health/ready"); err == nil {
			_, _ = io.Copy(io.Discard, r.Body)
			r.Body.Close()
			if r.StatusCode == http.StatusOK {
				return s, nil
			}
		}
		select {
		case err := <-s.done:
			return nil, fmt.Errorf("the server of %s ended before it was ready: %w", filepath.Base(plan), err)
		case <-ctx.Done():
			_ = s.cmd.Process.Kill()
			return nil, ctx.Err()
		case <-time.After(200 * time.Millisecond):
		}
	}
}

// stop drains the server.
func (s *server) stop() error {
	_ = s.cmd.Process.Signal(syscall.SIGTERM)
	select {
	case err := <-s.done:
		return err
	case <-time.After(40 * time.Second):
		_ = s.cmd.Process.Kill()
		return errors.Join(errors.New("the server did not drain"), <-s.done)
	}
}

// cluster writes a cluster of the device at hand.
func (c *check) cluster(name string, count, maxShares int, memory int64) error {
	line := fmt.Sprintf("- {device: %s, count: %d, max_shares: %d, per_node: %d", c.kind(), count, maxShares, count)
	if c.rehearsal() {
		line = fmt.Sprintf("- {device: %s, count: %d, per_node: %d", c.kind(), count, count)
	}
	if memory > 0 {
		// Each stage has its device, or share, to itself.
		line += fmt.Sprintf(", memory: %dB, sharing: exclusive", memory)
	}
	return os.WriteFile(c.work(name), []byte("format: inferplan.cluster/v1\npools:\n"+line+"}\n"), 0o644)
}

// workload writes a workload of models with one SLO.
func (c *check) workload(name string, slo string, models ...string) error {
	text := "format: inferplan.workload/v1\nmodels:\n"
	for _, m := range models {
		text += fmt.Sprintf("- {model: %s, slo: %s}\n", m, slo)
	}
	return os.WriteFile(c.work(name), []byte(text), 0o644)
}

// driven is one load of a served plan: what was measured, what simulation makes
// of the times that were recorded meanwhile, and what the plan promised.
type driven struct{ measured, simulated, promised *formats.Report }

// drive serves a plan, sends it a share of its planned rate and simulates the
// same arrivals.
func (c *check) drive(ctx context.Context, plan, models string, load float64, seconds int) (d driven, err error) {
	at := func(what string) string {
		return c.work(fmt.Sprintf("%s-%s.json", strings.TrimSuffix(plan, ".json"), what))
	}
	service, measured, simulated, promised := at("service"), at("measured"), at("simulated"), at("promised")
	s, err := c.startServer(ctx, c.work(plan), models, "--record", service, "-o", at("served"))
	if err != nil {
		return d, err
	}
	common := []string{"--load", fmt.Sprint(load), "--duration", fmt.Sprintf("%ds", seconds), "--warmup", "2s", "--seed", "1", "-q"}
	_, err = c.plan(ctx, append([]string{"load", s.http, "--plan", c.work(plan), "-o", measured}, common...)...)
	if err = errors.Join(err, s.stop()); err != nil {
		return d, err
	}
	if _, err = c.plan(ctx, append([]string{"simulate", c.work(plan), "--service", service, "-o", simulated}, common...)...); err != nil {
		return d, err
	}
	if _, err = c.plan(ctx, append([]string{"simulate", c.work(plan), "-o", promised}, common...)...); err != nil {
		return d, err
	}
	for path, to := range map[string]**formats.Report{measured: &d.measured, simulated: &d.simulated, promised: &d.promised} {
		if *to, err = formats.ReadReport(path); err != nil {
			return d, err
		}
	}
	return d, nil
}

func rel(a, b formats.Micros) float64 { return float64(a)/float64(b) - 1 }

// row is a load's line of a table.
func (d driven) row(load float64) []string {
	m, s, p := d.measured, d.simulated, d.promised
	return []string{fmt.Sprint(load), fmt.Sprint(m.Requests), micros(m.Latency.P50US), micros(m.Latency.P99US), pct(m.Attainment),
		signed(rel(m.Latency.P50US, s.Latency.P50US)), signed(rel(m.Latency.P99US, s.Latency.P99US)), signed(m.Attainment - s.Attainment),
		signed(rel(m.Latency.P50US, p.Latency.P50US)), signed(rel(m.Latency.P99US, p.Latency.P99US)), signed(m.Attainment - p.Attainment)}
}

var drivenHeader = []string{"load", "requests", "p50 us", "p99 us", "attainment %", "p50 to simulated %", "p99 %", "points", "p50 to promised %", "p99 %", "points"}

func signed(x float64) string { return fmt.Sprintf("%+.2f", 100*x) }

// promisedModel is the one that is served against its promise: of the nine CNNs
// that with the longest runs on a GPU at small batches, so that what a client adds
// to a request's way (a tenth of a millisecond or two) is a small part of what is
// compared.
const promisedModel = "densenet121"

// promise serves a planned model at three loads.
func promise(ctx context.Context, c *check, r *StepResult) error {
	// One model: two would take turns on the only device, and the longer one decide
	// about the other's SLO.
	name, loads, seconds, slo, budget := promisedModel, []float64{0.5, 0.8, 0.95}, 15, "8x", 20*time.Second
	batches := []int{1, 2, servedBatch}
	if c.Quick {
		name, loads, seconds, slo, budget = "squeezenet", []float64{0.5}, 6, "20x", 8*time.Second
		batches = []int{1, 2}
	}
	profile := c.work("promise-profile.json")
	if _, err := c.measureInto(ctx, profile, budget, []string{name}, batches, 1); err != nil {
		return err
	}
	planned := c.work("promise-as-served.json")
	if err := c.asServed(ctx, r, profile, planned, name); err != nil {
		return err
	}
	if err := c.cluster("promise-cluster.yaml", 1, 1, 0); err != nil {
		return err
	}
	if err := c.workload("promise-workload.yaml", slo, name); err != nil {
		return err
	}
	if _, err := c.plan(ctx, "solve", "--profile", planned, "--cluster", c.work("promise-cluster.yaml"), "--workload", c.work("promise-workload.yaml"),
		"--margin", "auto", "--certify", "--max-batch", fmt.Sprint(slices.Max(batches)), "-o", c.work("promise.json"), "--force"); err != nil {
		return err
	}
	plan, err := formats.ReadPlan(c.work("promise.json"))
	if err != nil {
		return err
	}
	shown := planTable(plan)
	r.table(shown.Title, shown.Header...).Rows = shown.Rows
	for _, load := range loads {
		at := fmt.Sprintf("load %g: ", load)
		if r.judged(at + "attainment") {
			continue
		}
		d, err := c.drive(ctx, "promise.json", c.work("models"), load, seconds)
		if err != nil {
			return err
		}
		t := r.table("measured against simulated with the times recorded meanwhile, and against what the profile promised", drivenHeader...)
		t.Rows = append(t.Rows, d.row(load))
		m, s := d.measured, d.simulated
		p50, p99, points := 100*rel(m.Latency.P50US, s.Latency.P50US), 100*rel(m.Latency.P99US, s.Latency.P99US), 100*(m.Attainment-s.Attainment)
		r.verdict(at+"p50 to simulated, %", "within 5", p50, math.Abs(p50) <= 5)
		r.verdict(at+"p99 to simulated, %", "within 10", p99, math.Abs(p99) <= 10)
		r.verdict(at+"attainment to simulated, points", "within 1", points, math.Abs(points) <= 1)
		if err := c.keep(r); err != nil {
			return err
		}
	}
	return nil
}

// asServed writes a profile whose times of a model's runs at one block are those
// of a worker's runs: inputs and outputs in the host's memory, copied by each run.
// A profile has what lies on the device copied by nobody.
func (c *check) asServed(ctx context.Context, r *StepResult, from, to, name string) error {
	p, err := readProfile(from)
	if err != nil {
		return err
	}
	_, sub, err := c.model(ctx, name)
	if err != nil {
		return err
	}
	runtime.LockOSThread()
	defer runtime.UnlockOSThread()
	blk, err := c.eng.Load(ctx, sub, c.dev, engine.Options{})
	if err != nil {
		return err
	}
	defer blk.Close()
	t := Table{Title: "one run, microseconds: on the device alone, and with the copies that a worker's run makes", Header: []string{"model", "batch", "profile", "as served"}}
	for i := range p.Models {
		m := &p.Models[i]
		for k := range m.Measurements {
			s := &m.Measurements[k]
			if m.Model != name || s.Share != 1 || len(s.Blocks) != 1 {
				continue
			}
			took, err := c.hostRuns(ctx, blk, s.Batch)
			if err != nil {
				return err
			}
			t.Rows = append(t.Rows, []string{name, fmt.Sprint(s.Batch), micros(s.Blocks[0].WallUS), fmt.Sprintf("%.1f", float64(took)/1e3)})
			if c.rehearsal() {
				continue // a CPU copies nothing, and its profile counts CPU time
			}
			for _, l := range []*formats.Latency{&s.Blocks[0], s.Whole} {
				if l == nil {
					continue
				}
				if l.P99US != 0 {
					l.P99US += formats.Micros(took) - l.WallUS
				}
				l.WallUS = formats.Micros(took)
			}
		}
	}
	r.table(t.Title, t.Header...).Rows = t.Rows
	_, err = formats.WriteFile(to, p, formats.Force(true))
	return err
}

// hostRuns is the median time of a run between copies in and out.
func (c *check) hostRuns(ctx context.Context, blk engine.Block, batch int) (time.Duration, error) {
	b, free, err := c.hostBinding(blk, batch)
	if err != nil {
		return 0, err
	}
	defer free()
	defer b.Close()
	var took []time.Duration
	for begin := time.Now(); len(took) < 20 || len(took) < 400 && time.Since(begin) < 2*time.Second; {
		at := time.Now()
		if err := b.Run(ctx); err != nil {
			return 0, err
		}
		took = append(took, time.Since(at))
	}
	took = took[len(took)/10:] // the first ones warm up
	slices.Sort(took)
	return took[len(took)/2], nil
}

func planTable(p *formats.Plan) Table {
	t := Table{Title: "the plan", Header: []string{"model", "rps", "batch", "stages", "SLO ms"}}
	for i, m := range p.Deployment {
		for _, pl := range m.Pipelines {
			var stages []string
			for _, s := range pl.Stages {
				stages = append(stages, fmt.Sprintf("[%d,%d) on %d of 1/%d %s", s.Blocks[0], s.Blocks[1], s.Replicas, s.Share, s.Device))
			}
			t.Rows = append(t.Rows, []string{m.Model, fmt.Sprintf("%.1f", pl.RPS), fmt.Sprint(pl.Batch), strings.Join(stages, ", "), fmt.Sprintf("%.1f", p.Promised(i).SLOUS.D().Seconds()*1e3)})
		}
	}
	return t
}

// servedBatch is the largest batch of served plans. A worker on a GPU makes
// every batch size up to it ready, seconds each; time on the GPU is scarce.
const servedBatch = 4

var smallestPipeline = regexp.MustCompile(`smallest pipeline needs (\d+) bytes`)

// pooled serves a pipeline of two stages on two shares of the device.
func pooled(ctx context.Context, c *check, r *StepResult) error {
	if err := c.needsProfile(pooledModel); err != nil {
		return err
	}
	if c.rehearsal() {
		return c.servePooled(ctx, r, 2, 1)
	}
	return c.withMPS(r, func() error {
		if _, err := c.measure(ctx, "profile.json", 30*time.Second, []string{pooledModel}, []int{1, servedBatch}, "--shares", "2"); err != nil {
			return errors.Join(err, stopped(ctx))
		}
		return errors.Join(c.servePooled(ctx, r, 1, 2), stopped(ctx))
	})
}

const pooledModel = "resnet50"

// pipelineAnswers sends several inputs through a plan, one after the other, and
// looks whether each answer is that of its own input: what one stage reads of
// another's memory must be what was written last. (Numbers are not held against
// each other: a GPU rounds otherwise.)
func (c *check) pipelineAnswers(ctx context.Context, r *StepResult, plan *formats.Plan, name string) error {
	const samples = 3
	path, sub, err := c.model(ctx, name)
	if err != nil {
		return err
	}
	// By the CPU: a process that has opened the GPU would keep MPS from ending.
	cpu, err := reference()
	if err != nil {
		return err
	}
	want, err := c.answer(ctx, sub, cpu, engine.Options{}, samples)
	if err != nil {
		return err
	}
	x, err := executor.New(ctx, plan, executor.Options{
		ModelsDir: filepath.Dir(path), ShareCPUs: true, Command: []string{c.Self, "worker"}, Log: slog.New(slog.NewTextHandler(c.log(), nil)),
	})
	if err != nil {
		return err
	}
	defer x.Close()
	data := input(sub.Inputs[0], samples)
	per, own := len(data)/samples, 0
	for k := range samples {
		req := request(name, sub, 1, data[k*per:(k+1)*per])
		resp, err := x.Infer(ctx, req)
		if err != nil {
			return err
		}
		own += count(nearest(float32s(resp.Outputs[0].Data), want[0]) == k)
		if resp.Release != nil {
			resp.Release()
		}
	}
	r.verdict("answers of the pipeline that are those of their inputs", fmt.Sprint(samples), float64(own), own == samples)
	return nil
}

// nearest is the row of all whose largest difference from v is the least.
func nearest(v, all []float32) int {
	best, least := -1, math.Inf(1)
	for k := 0; (k+1)*len(v) <= len(all); k++ {
		if d, _, _, _ := difference([][]float32{v}, [][]float32{all[k*len(v) : (k+1)*len(v)]}, 1); d < least {
			best, least = k, d
		}
	}
	return best
}

// servePooled plans and serves it. The planner cuts a model in two where it must:
// here the cluster's memory is declared too small for the whole of it.
func (c *check) servePooled(ctx context.Context, r *StepResult, count, share int) error {
	const name, file = pooledModel, "profile.json"
	seconds := 15
	if c.Quick {
		seconds = 6
	}
	profile, slo := c.out(file), "20x"
	rounding := "slot"
	if share > 1 {
		// Only shares may be used: on the whole device no model would have to be cut.
		var err error
		if slo, err = c.onlyShare(file, c.work("pooled-profile.json"), name, share); err != nil {
			return err
		}
		profile, rounding = c.work("pooled-profile.json"), "fractional"
	}
	if err := c.workload("pooled-workload.yaml", slo, name); err != nil {
		return err
	}
	solve := []string{"solve", "--profile", profile, "--gpu-rounding", rounding, "--cluster", c.work("pooled-cluster.yaml"), "--workload", c.work("pooled-workload.yaml"),
		"--max-partitions", "2", "--max-batch", fmt.Sprint(min(servedBatch, slices.Max(c.batches()))), "-o", c.work("pooled.json"), "--force"}
	// The planner says how little memory is enough for some pipeline.
	if err := c.cluster("pooled-cluster.yaml", count, share, 1<<20); err != nil {
		return err
	}
	text, _ := c.plan(ctx, append(solve, "--json")...)
	var memory int64
	if m := smallestPipeline.FindStringSubmatch(text); m == nil {
		return fmt.Errorf("the planner does not say how much memory %s needs: %s", name, text)
	} else if _, err := fmt.Sscan(m[1], &memory); err != nil {
		return err
	}
	if err := c.cluster("pooled-cluster.yaml", count, share, memory); err != nil {
		return err
	}
	if _, err := c.plan(ctx, solve...); err != nil {
		return err
	}
	plan, err := formats.ReadPlan(c.work("pooled.json"))
	if err != nil {
		return err
	}
	r.Tables = append(r.Tables, planTable(plan))
	stages := 0
	for _, pl := range plan.Deployment[0].Pipelines {
		stages = max(stages, len(pl.Stages))
	}
	r.verdict("stages of the pipeline", "2", float64(stages), stages == 2)
	if err := c.pipelineAnswers(ctx, r, plan, name); err != nil {
		return err
	}
	d, err := c.drive(ctx, "pooled.json", c.work("models"), 0.8, seconds)
	if err != nil {
		return err
	}
	r.Tables = append(r.Tables, Table{Title: "served at 0.8 of the planned rate", Header: drivenHeader, Rows: [][]string{d.row(0.8)}})
	r.verdict("attainment at 0.8 of the planned rate, %", ">= 99", 100*d.measured.Attainment, d.measured.Attainment >= 0.99)
	if s, err := formats.ReadReport(c.work("pooled-served.json")); err == nil && s.Transfer != nil {
		r.Tables = append(r.Tables, transferTable(s.Transfer))
	}
	return nil
}

// onlyShare copies a profile without the measurements of other shares, and
// returns the SLO of 20 times the whole device's time.
func (c *check) onlyShare(file, to, name string, share int) (slo string, err error) {
	p, err := readProfile(c.out(file))
	if err != nil {
		return "", err
	}
	one := find(p, name, c.kind(), 1, 1)
	if one == nil || one.Whole == nil {
		return "", fmt.Errorf("%s has no measurement of %s at batch 1", file, name)
	}
	for i := range p.Models {
		m := &p.Models[i]
		m.Measurements = slices.DeleteFunc(m.Measurements, func(s formats.Measurement) bool { return s.Share != share })
	}
	_, err = formats.WriteFile(to, p, formats.Force(true))
	return fmt.Sprintf("%dus", 20*one.Whole.WallUS.D().Microseconds()), err
}

// transferTable tells by which tiers tensors went.
func transferTable(x *formats.TierReport) Table {
	t := Table{Title: "how tensors crossed while it was served", Header: []string{"tier", "transfers", "bytes", "1e9 bytes a second until the reader was told"}}
	for _, v := range x.Tiers {
		t.Rows = append(t.Rows, []string{v.Name, fmt.Sprint(v.Transfers), fmt.Sprint(v.Bytes), fmt.Sprintf("%.2f", v.BytesPerSecond/1e9)})
	}
	return t
}

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
