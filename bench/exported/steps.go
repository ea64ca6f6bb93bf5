package main

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"time"

	"golang.org/x/sync/errgroup"

	"inferplan/bench/served"
	"inferplan/engine"
	"inferplan/engine/graph"
	"inferplan/engine/ort"
	"inferplan/executor/oip"
	"inferplan/formats"
)

// outcome holds the last step that a model reached, and what it showed there.
type outcome struct {
	*exported
	stage      string // profile, solve, serve, request: where it ended
	text       string // of the message, where it did not come through
	code       int    // exit code of the command that ended it
	difference float64
	batch      int    // the largest that ran
	batches    string // that ran, in words
	right      bool
}

// How many samples are asked for: one alone, so many as one request, and all at once.
const inOneRequest, samplesCount = 3, 8

// patience is the time after which a command is stopped.
const patience = 20 * time.Minute

// take takes a model through all steps.
func (b *bench) take(ctx context.Context, eng *ort.Engine, c *exported) (*outcome, error) {
	x := &outcome{exported: c, stage: "profile"}
	dir, err := os.MkdirTemp("", "exported-")
	if err != nil {
		return x, err
	}
	defer os.RemoveAll(dir)
	file, err := filepath.Abs(filepath.Join(b.third, c.file))
	if err != nil {
		return x, err
	}
	p := served.Program{Path: b.plan, Folder: dir}
	for _, step := range [][]string{
		append([]string{"profile", file, "--batches", cmp.Or(c.batches, "1,2,4"), "--budget", b.budget.String(), "-o", "profile.json"}, c.flags...),
		{"solve", "--profile", "profile.json", "--slo", cmp.Or(c.slo, "5s"), "-o", "plan.json"},
	} {
		x.stage = step[0]
		err := runPatiently(ctx, p, step)
		if exit, ok := errors.AsType[*exec.ExitError](err); ok && exit.Exited() {
			x.text, x.code = lastLine(err.Error()), exit.ExitCode()
			x.right = c.refused != "" && x.code == 2 && strings.Contains(x.text, c.refused)
			return x, nil
		}
		if err != nil {
			return x, err
		}
	}
	plan, err := formats.ReadPlan(filepath.Join(dir, "plan.json"))
	if err != nil {
		return x, err
	}
	a := &asking{model: &plan.Deployment[0]}
	if err := a.expect(ctx, eng, file); err != nil {
		return x, fmt.Errorf("the file itself: %w", err)
	}
	x.stage = "serve"
	s, err := p.Serve(ctx, "plan.json", "--models-dir", filepath.Dir(file), "--http", "127.0.0.1:0", "--grpc", "off", "--metrics", "127.0.0.1:0")
	if err != nil {
		if s != nil {
			x.code = s.ExitCode()
		}
		return x, err
	}
	x.stage = "request"
	err = a.askEverything(ctx, s.HTTP, x)
	return x, errors.Join(err, s.Stop())
}

// runPatiently runs a command and stops it when it takes too long.
func runPatiently(ctx context.Context, p served.Program, args []string) error {
	limited, cancel := context.WithTimeout(ctx, patience)
	defer cancel()
	err := p.Run(limited, args...)
	if limited.Err() != nil {
		return fmt.Errorf("stopped after %v", patience)
	}
	return err
}

func lastLine(s string) string {
	lines := strings.Split(strings.TrimSpace(s), "\n")
	return lines[len(lines)-1]
}

// asking is a model with samples and what the file itself answers to each.
type asking struct {
	model    *formats.Deployed
	samples  [][]oip.Tensor
	expected []map[string]ort.Output
}

// isBatched returns whether requests may have several samples.
func (a *asking) isBatched() bool {
	for _, t := range a.model.Inputs {
		if len(t.Shape) == 0 || t.Shape[0] > 0 {
			return false
		}
	}
	return true
}

// expect draws samples and runs the file as it is.
func (a *asking) expect(ctx context.Context, eng *ort.Engine, file string) error {
	data, err := os.ReadFile(file)
	if err != nil {
		return err
	}
	n := 1
	if a.isBatched() {
		n = samplesCount
	}
	var names []string
	for _, output := range a.model.Outputs {
		if filepath.Base(file) != "sklearn_randomforest.onnx" || output.Name != "probabilities" { // maps in the file
			names = append(names, output.Name)
		}
	}
	for i := range n {
		inputs, err := drawSample(a.model, i)
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
			if err := feed(in.Name, in.Datatype.String(), in.Shape, in.Data); err != nil {
				return err
			}
		}
		for _, k := range a.model.Constants {
			value, err := graph.Literal{Values: k.Value}.Bytes(types[k.DType])
			if err != nil {
				return err
			}
			if err := feed(k.Name, k.DType, []int64{}, value); err != nil {
				return err
			}
		}
		outputs, err := eng.Eval(ctx, data, feeds, names, engine.Options{}, -1)
		if err != nil {
			return err
		}
		a.samples, a.expected = append(a.samples, inputs), append(a.expected, outputs)
	}
	return nil
}

// askEverything asks for one sample, for several in one request, and for all at once.
func (a *asking) askEverything(ctx context.Context, address string, x *outcome) (err error) {
	if x.difference, err = a.compare(ctx, address, 0, 1); err != nil {
		return err
	}
	x.batches = "one request at a time"
	if a.isBatched() {
		together, err := a.compare(ctx, address, 0, inOneRequest)
		if err != nil {
			return fmt.Errorf("%d samples in one request: %w", inOneRequest, err)
		}
		x.difference = max(x.difference, together)
		differences := make([]float64, len(a.samples))
		var group errgroup.Group
		for i := range a.samples {
			group.Go(func() (err error) {
				differences[i], err = a.compare(ctx, address, i, 1)
				return err
			})
		}
		if err := group.Wait(); err != nil {
			return fmt.Errorf("%d requests at once: %w", len(a.samples), err)
		}
		for _, d := range differences {
			x.difference = max(x.difference, d)
		}
		if x.batch, err = largestBatch(ctx, address, a.model.Model); err != nil {
			return err
		}
		x.batches = fmt.Sprintf("1 and %d samples a request, %d requests at once; batches up to %d", inOneRequest, len(a.samples), x.batch)
	}
	if x.right = x.difference <= cmp.Or(x.limit, differs); !x.right {
		return fmt.Errorf("answers differ by %.2g", x.difference)
	}
	return nil
}

// compare sends n samples from the i-th on as one request, and returns how far the answer is from the expected one. A server that is not
// ready or has no room is asked again.
func (a *asking) compare(ctx context.Context, address string, i, n int) (largest float64, err error) {
	var answer map[string][]byte
	for range 300 {
		answer, err = ask(ctx, address, a.model.Model, join(a.samples[i:i+n]))
		if err == nil || ctx.Err() != nil || !strings.Contains(err.Error(), "503") && !strings.Contains(err.Error(), "429") && !strings.Contains(err.Error(), "refused") {
			break
		}
		time.Sleep(100 * time.Millisecond)
	}
	if err != nil {
		return 0, err
	}
	for name, first := range a.expected[0] {
		found, ok := answer[name]
		if !ok {
			return 0, fmt.Errorf("no output %q", name)
		}
		var expected []byte
		for k := range n {
			expected = append(expected, a.expected[i+k][name].Data...)
		}
		d, err := difference(first.Type, found, expected)
		if err != nil {
			return 0, fmt.Errorf("output %q: %w", name, err)
		}
		largest = max(largest, d)
	}
	return largest, nil
}
