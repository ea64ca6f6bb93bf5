package main

import (
	"bufio"
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"syscall"
	"time"

	"inferplan/engine"
	"inferplan/engine/graph"
	"inferplan/engine/ort"
	"inferplan/formats"
)

// outcome holds the last step that a model reached, and what it showed there.
type outcome struct {
	*exported
	stage   string // profile, solve, serve, request, answer: where it ended
	text    string // of the message, where it did not come through
	code    int    // exit code of the command that ended it
	differ  float64
	batch   int    // the largest that ran
	batches string // that ran, in words
	right   bool
}

// How many samples are asked for: one alone, so many as one request, and all at once.
const inOneRequest, samplesCount = 3, 8

// take takes a model through all steps.
func (o *options) take(ctx context.Context, eng *ort.Engine, c *exported) (*outcome, error) {
	x := &outcome{exported: c, stage: "profile"}
	dir, err := os.MkdirTemp("", "exported-")
	if err != nil {
		return x, err
	}
	defer os.RemoveAll(dir)
	file, err := filepath.Abs(filepath.Join(o.third, c.file))
	if err != nil {
		return x, err
	}
	profile, plan := filepath.Join(dir, "profile.json"), filepath.Join(dir, "plan.json")
	for _, step := range [][]string{
		append([]string{"profile", file, "--batches", cmp.Or(c.batches, "1,2,4"), "--budget", o.budget.String(), "-o", profile}, c.flags...),
		{"solve", "--profile", profile, "--slo", cmp.Or(c.slo, "5s"), "-o", plan},
	} {
		x.stage = step[0]
		if x.text, x.code, err = o.command(ctx, step...); err != nil {
			return x, err
		}
		if x.code != 0 {
			x.right = c.refused != "" && x.code == 2 && strings.Contains(x.text, c.refused)
			return x, nil
		}
	}
	p, err := formats.ReadPlan(plan)
	if err != nil {
		return x, err
	}
	a := &asking{x: x, m: &p.Deployment[0]}
	if err := a.expect(ctx, eng, file); err != nil {
		return x, fmt.Errorf("the file itself: %w", err)
	}
	x.stage = "serve"
	last, code, err := o.serve(ctx, plan, filepath.Dir(file), func(ctx context.Context, at string) error {
		x.stage = "request"
		return a.ask(ctx, at)
	})
	if x.stage == "serve" {
		x.text, x.code = last, code
	}
	return x, err
}

// command runs plan to its end and returns the last line that it says. One that takes too long is stopped.
func (o *options) command(ctx context.Context, args ...string) (last string, code int, err error) {
	ctx, cancel := context.WithTimeout(ctx, o.patience)
	defer cancel()
	out, err := exec.CommandContext(ctx, o.plan, args...).CombinedOutput()
	last = lastLine(string(out))
	if ctx.Err() != nil {
		return last, 0, fmt.Errorf("stopped after %v", o.patience)
	}
	if exit := (*exec.ExitError)(nil); errors.As(err, &exit) {
		return last, exit.ExitCode(), nil
	}
	return last, 0, err
}

// asking is a model with samples and what the file itself answers to each.
type asking struct {
	x       *outcome
	m       *formats.Deployed
	samples [][]tensor
	want    []map[string]ort.Output
}

// expect draws samples and runs the file as it is.
func (a *asking) expect(ctx context.Context, eng *ort.Engine, file string) error {
	data, err := os.ReadFile(file)
	if err != nil {
		return err
	}
	n := 1
	if a.free() {
		n = samplesCount
	}
	for i := range n {
		inputs, err := inputsOf(a.m, i)
		if err != nil {
			return err
		}
		var feeds []engine.Tensor
		feed := func(name, datatype string, shape []int64, data []byte) error {
			t, err := engine.NewHostTensor(engine.Spec{Name: name, Type: types[datatype], Shape: shape}, 1, data)
			feeds = append(feeds, t)
			return err
		}
		for _, in := range inputs {
			if err := feed(in.Name, in.Datatype, in.Shape, in.data); err != nil {
				return err
			}
		}
		for _, k := range a.m.Constants {
			value, err := graph.Literal{Values: k.Value}.Bytes(types[k.DType])
			if err != nil {
				return err
			}
			if err := feed(k.Name, k.DType, []int64{}, value); err != nil {
				return err
			}
		}
		var names []string
		for _, out := range a.m.Outputs {
			if filepath.Base(file) != "sklearn_randomforest.onnx" || out.Name != "probabilities" { // maps in the file
				names = append(names, out.Name)
			}
		}
		want, err := eng.Eval(ctx, data, feeds, names, engine.Options{}, -1)
		if err != nil {
			return err
		}
		a.samples, a.want = append(a.samples, inputs), append(a.want, want)
	}
	return nil
}

// free returns whether requests may have several samples.
func (a *asking) free() bool {
	for _, t := range a.m.Inputs {
		if len(t.Shape) == 0 || t.Shape[0] > 0 {
			return false
		}
	}
	return true
}

// serve serves a plan and calls use with the address. Where the server ends before it has one, its last line
// and its exit code are returned.
func (o *options) serve(ctx context.Context, plan, models string, use func(ctx context.Context, at string) error) (last string, code int, err error) {
	ctx, cancel := context.WithTimeout(ctx, o.patience)
	defer cancel()
	cmd := exec.CommandContext(ctx, o.plan, "serve", plan, "--models", models, "--http", "127.0.0.1:0", "--grpc", "off", "--metrics", "127.0.0.1:0")
	cmd.Cancel = func() error { return cmd.Process.Signal(syscall.SIGTERM) }
	cmd.WaitDelay = 10 * time.Second
	pipe, err := cmd.StderrPipe()
	if err != nil {
		return "", 0, err
	}
	if err := cmd.Start(); err != nil {
		return "", 0, err
	}
	address, done := make(chan string, 1), make(chan struct{})
	go func() {
		defer close(done)
		lines := bufio.NewScanner(pipe)
		for lines.Scan() {
			last = lines.Text()
			if _, rest, ok := strings.Cut(last, ": HTTP "); ok && strings.Contains(rest, ",") {
				address <- rest[:strings.Index(rest, ",")]
			}
		}
		io.Copy(io.Discard, pipe)
	}()
	select {
	case <-done:
		err = cmd.Wait()
		return last, cmd.ProcessState.ExitCode(), err
	case at := <-address:
		err = use(ctx, at)
	}
	cmd.Process.Signal(syscall.SIGTERM)
	<-done
	cmd.Wait()
	return "", 0, err
}

// ask asks for one sample, for several in one request, and for all at once.
func (a *asking) ask(ctx context.Context, at string) error {
	if err := a.one(ctx, at, 0, 1); err != nil {
		return err
	}
	a.x.batches = "one request at a time"
	if a.free() {
		if err := a.one(ctx, at, 0, inOneRequest); err != nil {
			return fmt.Errorf("%d samples in one request: %w", inOneRequest, err)
		}
		errs := make([]error, len(a.samples))
		worst := make([]asking, len(a.samples))
		var wg sync.WaitGroup
		for i := range a.samples {
			x := *a.x
			worst[i] = *a
			worst[i].x = &x
			wg.Go(func() { errs[i] = worst[i].one(ctx, at, i, 1) })
		}
		wg.Wait()
		if err := errors.Join(errs...); err != nil {
			return fmt.Errorf("%d requests at once: %w", len(errs), err)
		}
		for i := range worst {
			a.x.differ = max(a.x.differ, worst[i].x.differ)
		}
		var err error
		if a.x.batch, err = largestBatch(ctx, at, a.m.Model); err != nil {
			return err
		}
		a.x.batches = fmt.Sprintf("1 and %d samples a request, %d requests at once; batches up to %d", inOneRequest, len(a.samples), a.x.batch)
	}
	a.x.right = a.x.differ <= cmp.Or(a.x.limit, differs)
	if !a.x.right {
		return fmt.Errorf("answers differ by %.2g", a.x.differ)
	}
	return nil
}

// one sends n samples from the i-th on as one request, and compares the answer with the expected one. A
// server that is not ready or has no room is asked again.
func (a *asking) one(ctx context.Context, at string, i, n int) error {
	var answer map[string]tensor
	var err error
	for range 300 {
		answer, err = ask(ctx, at, a.m.Model, together(a.samples[i:i+n]))
		if err == nil || ctx.Err() != nil || !strings.Contains(err.Error(), "503") && !strings.Contains(err.Error(), "429") && !strings.Contains(err.Error(), "refused") {
			break
		}
		time.Sleep(100 * time.Millisecond)
	}
	if err != nil {
		return err
	}
	for name, first := range a.want[0] {
		got, ok := answer[name]
		if !ok {
			return fmt.Errorf("no output %q", name)
		}
		var want []byte
		for k := range n {
			want = append(want, a.want[i+k][name].Data...)
		}
		d, err := differ(first.Type, got.data, want)
		if err != nil {
			return fmt.Errorf("output %q: %w", name, err)
		}
		a.x.differ = max(a.x.differ, d)
	}
	return nil
}

func lastLine(s string) string {
	lines := strings.Split(strings.TrimSpace(s), "\n")
	return lines[len(lines)-1]
}
