package gpucheck

import (
	"context"
	"errors"
	"fmt"
	"os"
	"strings"
	"time"

	"inferplan/engine"
	"inferplan/profiler"
)

// shares measures 1/2, 1/3 and 1/4 of the device with as many copies at work.
func shares(ctx context.Context, c *check, r *StepResult) error {
	if c.rehearsal() {
		return c.rehearseShares(ctx, r)
	}
	err := c.withMPS(r, func() error {
		for _, name := range served {
			if _, err := c.measure(ctx, "profile.json", 70*time.Second, []string{name}, []int{1, 8}, "--shares", "2,3,4"); err != nil {
				return errors.Join(err, stopped(ctx))
			}
		}
		return nil
	})
	if err != nil {
		return err
	}
	p, err := readProfile(c.out("profile.json"))
	if err != nil {
		return err
	}
	r.note("shares by %s", p.Devices[0].ShareMethod)
	t := Table{Title: "whole model, all copies at work", Header: []string{"model", "batch", "share", "us", "times the whole device's", "samples/s of all copies together", "of the whole device's"}}
	for _, m := range p.Models {
		for _, s := range m.Measurements {
			one := find(p, m.Model, s.Device, 1, s.Batch)
			if s.WholeModel == nil || one == nil || one.WholeModel == nil || (s.Batch != 1 && s.Batch != 8) {
				continue
			}
			ratio := float64(s.WholeModel.WallUS) / float64(one.WholeModel.WallUS)
			rate := float64(s.Share*s.Batch) / s.WholeModel.WallUS.D().Seconds()
			t.Rows = append(t.Rows, []string{m.Model, fmt.Sprint(s.Batch), fmt.Sprintf("1/%d", s.Share), micros(s.WholeModel.WallUS), fmt.Sprintf("%.2f", ratio), fmt.Sprintf("%.0f", rate), fmt.Sprintf("%.2f", float64(s.Share)/ratio)})
		}
	}
	r.Tables = append(r.Tables, t)
	return nil
}

// rehearseShares starts two processes of shares on the CPU and lets them run
// side by side: everything but the division of a GPU.
func (c *check) rehearseShares(ctx context.Context, r *StepResult) error {
	_, sub, err := c.model(ctx, "squeezenet")
	if err != nil {
		return err
	}
	s, err := profiler.Processes{Command: []string{c.Self, "share"}, Stderr: c.log()}.Open(ctx, c.dev, 2)
	if err != nil {
		return err
	}
	defer s.Close()
	var runs []func(int) (engine.Timing, error)
	for i, e := range s.Engines() {
		x := *sub
		blk, err := e.Load(ctx, &x, s.Device(i), engine.Options{})
		if err != nil {
			return err
		}
		b, err := blk.Bind(engine.BindOptions{Batch: 1})
		if err != nil {
			return err
		}
		runs = append(runs, b.RunN)
	}
	one, err := runs[0](5)
	if err != nil {
		return err
	}
	both, err := profiler.RunTogether(runs)(5)
	if err != nil {
		return err
	}
	r.note("no shares on a CPU: two processes on one CPU, %s", s.Method())
	r.Tables = append(r.Tables, Table{Header: []string{"copies at work", "ms per run"}, Rows: [][]string{
		{"1", fmt.Sprintf("%.1f", one.Wall.Seconds()*1e3/5)}, {"2", fmt.Sprintf("%.1f", both.Wall.Seconds()*1e3/5)},
	}})
	return nil
}

// withMPS does what needs shares of the GPU while CUDA's Multi-Process Service
// runs, started for it with folders of its own. Without its program, or where what
// is done fails under it, shares are made by time slicing and named so.
func (c *check) withMPS(r *StepResult, do func() error) error {
	// Not below the work folder: its sockets' names are bounded to 108 bytes.
	dir, err := os.MkdirTemp("", "ip-mps-")
	if err != nil {
		return fmt.Errorf("start MPS: %w", err)
	}
	defer os.RemoveAll(dir)
	m, err := profiler.StartMPS(dir)
	if err != nil {
		r.note("no MPS: %v", err)
		return do()
	}
	var names []string
	for _, kv := range m.Env() {
		k, v, _ := strings.Cut(kv, "=")
		os.Setenv(k, v)
		names = append(names, k)
	}
	err = do()
	if stopped := m.Stop(); stopped != nil {
		fmt.Fprintf(c.log(), "stopping MPS: %v\n", stopped)
	}
	for _, k := range names {
		os.Unsetenv(k)
	}
	if err == nil || errors.Is(err, errStopped) {
		r.note("MPS ran, started for this step")
		return err
	}
	r.note("with MPS: %v; again by time slicing", err)
	return do()
}

func stopped(ctx context.Context) error {
	if ctx.Err() != nil {
		return errStopped
	}
	return nil
}

// errStopped: the step's time is up, trying another way makes no sense.
var errStopped = errors.New("out of time")
