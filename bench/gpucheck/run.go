package gpucheck

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"time"
)

// Options of a check.
type Options struct {
	Self   string        // this program
	Device string        // cuda:0, or cpu for a rehearsal
	Out    string        // folder for results
	Work   string        // folder for models and what else steps need
	Digits string        // folder with the digits family and its samples; if empty, the cascade step is left out
	Limit  time.Duration // of this call; 0 stands for none
	Steps  []string      // only these; all if empty
	Again  bool          // do again what is done
	Quick  bool          // small sizes: always so on a CPU
	Mirror string        // folder that gets a copy of the results while the check runs; none if empty
	Log    io.Writer
}

// step is one part of the check.
type step struct {
	name, title string
	needs       time.Duration // on a GPU, about: with less left of the call's limit it is left for the next call
	limit       time.Duration // on a GPU
	run         func(ctx context.Context, c *check, r *StepResult) error
}

var steps = []step{
	{"doctor", "What is here", 15 * time.Second, time.Minute, doctor},
	{"outputs", "Outputs against the CPU's, TF32 off", 100 * time.Second, 4 * time.Minute, outputs},
	{"fallback", "An operator that the provider lacks", 15 * time.Second, time.Minute, fallback},
	{"ceilings", "Copies and matrix products", 30 * time.Second, 2 * time.Minute, ceilings},
	{"profile", "One CNN, 8 batch sizes, 10 blocks", 160 * time.Second, 4 * time.Minute, profileOnce},
	{"executor", "The executor against a bare engine loop", 75 * time.Second, 2 * time.Minute, executorRatio},
	{"promise", "Promise against measurement", 120 * time.Second, 5 * time.Minute, promise},
	{"repeat", "The same profile again", 110 * time.Second, 4 * time.Minute, repeatProfile},
	{"graphs", "Chain of blocks against the whole, CUDA graphs", 110 * time.Second, 4 * time.Minute, graphs},
	{"roofline", "Distance from the roofline", 0, time.Minute, roofline},
	{"half", "Whole models in float16", 60 * time.Second, 3 * time.Minute, half},
	{"shares", "Shares of the GPU", 150 * time.Second, 5 * time.Minute, shares},
	{"pooled", "Two stages on two shares", 95 * time.Second, 3 * time.Minute, pooled},
	{"cascade", "A cascade", 80 * time.Second, 4 * time.Minute, cascade},
	{"tiers", "How tensors cross between processes", 0, time.Minute, tiers},
	{"swap", "Load, first run, unload", 60 * time.Second, 3 * time.Minute, swap},
	{"cnns", "All CNNs at batches 1 to 64", 45 * time.Second, 20 * time.Minute, allCNNs},
}

// goOn are the steps that go on from what an earlier call kept of them. (Steps
// that measure profiles go on from those by themselves.)
var goOn = map[string]bool{"outputs": true, "profile": true, "executor": true, "promise": true, "swap": true}

// Names lists the steps in their order.
func Names() []string {
	var out []string
	for _, s := range steps {
		out = append(out, s.name)
	}
	return out
}

// leastTime is the least time that a step gets.
const leastTime = 30 * time.Second

// Run does what is not done yet and writes the document after every step. It
// returns whether everything was done and every verdict holds.
func Run(ctx context.Context, o Options) (ok bool, err error) {
	for _, dir := range []string{o.Out, o.Work} {
		if err := os.MkdirAll(dir, 0o755); err != nil {
			return false, fmt.Errorf("make the folder for results: %w", err)
		}
	}
	for _, name := range o.Steps {
		if !slices.Contains(Names(), name) {
			return false, fmt.Errorf("step %q: expected some of %s", name, strings.Join(Names(), ", "))
		}
	}
	doc, err := open(&o)
	if err != nil {
		return false, err
	}
	if err := doc.sameGPU(&o); err != nil {
		return false, err
	}
	// What the last call was doing when it was killed.
	if r, err := readKept(o.Out); err == nil {
		if have := doc.find(r.Step); have == nil || have.Status == Partial || have.Status == Failed {
			doc.put(*r)
			if err := doc.write(&o); err != nil {
				return false, err
			}
		}
		_ = os.Remove(keptIn(o.Out))
	}
	defer mirror(ctx, &o)()
	begun := time.Now()
	ok = true
	for _, s := range steps {
		if len(o.Steps) > 0 && !slices.Contains(o.Steps, s.name) {
			continue
		}
		if have := doc.find(s.name); have != nil && !o.Again && (have.Status == Passed || have.Status == Missed) {
			fmt.Fprintf(o.Log, "%-9s %s already\n", s.name, have.Status)
			ok = ok && have.Status == Passed
			continue
		}
		limit := s.limit
		if doc.Rehearsal {
			limit *= 4 // a CPU, which others share
		}
		if o.Limit > 0 {
			left := o.Limit - time.Since(begun)
			if left < max(leastTime, s.needs) {
				fmt.Fprintf(o.Log, "%-9s left for the next call\n", s.name)
				ok = false
				continue
			}
			limit = min(limit, left)
		}
		fmt.Fprintf(o.Log, "%-9s %s, at most %s\n", s.name, s.title, limit.Round(time.Second))
		if have := doc.find(s.name); have != nil && have.Status == Partial && !o.Again && goOn[s.name] {
			if err := have.keep(o.Out); err != nil { // the step goes on from there
				return false, err
			}
		}
		r := runApart(ctx, &o, s, limit)
		doc.put(r)
		_ = os.Remove(keptIn(o.Out))
		if err := doc.write(&o); err != nil {
			return false, err
		}
		fmt.Fprintf(o.Log, "%-9s %s after %.1f s %s\n", s.name, r.Status, r.Seconds, r.Error)
		for _, v := range r.Verdicts {
			fmt.Fprintf(o.Log, "          %s\n", v)
		}
		ok = ok && r.Status == Passed
		if ctx.Err() != nil {
			return false, ctx.Err()
		}
	}
	return ok, nil
}

// runApart runs a step in a process of its own: a fault in a library, memory
// that is not given back, variables that libraries read once, and a step that
// hangs are its own.
func runApart(ctx context.Context, o *Options, s step, limit time.Duration) StepResult {
	r := StepResult{Step: s.name, Title: s.title, Status: Failed}
	begun := time.Now()
	before := 0.0 // what earlier calls spent on the step
	if have, err := readKept(o.Out); err == nil && have.Step == s.name {
		before = have.Seconds
	} else {
		_ = os.Remove(keptIn(o.Out))
	}
	cmd := exec.Command(o.Self, "gpu-check", "--one", s.name, "--device", o.Device, "--out", o.Out, "--work", o.Work, "--digits", o.Digits,
		"--limit", (limit - 5*time.Second).String(), "--quick="+fmt.Sprint(o.Quick))
	cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true}
	cmd.Env = append(os.Environ(), s.environment()...)
	var tail lastBytes
	log, err := os.OpenFile(filepath.Join(o.Out, "gpu-check.log"), os.O_APPEND|os.O_CREATE|os.O_WRONLY, 0o644)
	if err == nil {
		defer log.Close()
		fmt.Fprintf(log, "== %s %s\n", s.name, time.Now().UTC().Format(time.RFC3339))
		cmd.Stdout, cmd.Stderr = io.MultiWriter(log, &tail), io.MultiWriter(log, &tail)
	}
	cmd.WaitDelay = 5 * time.Second
	err = cmd.Start()
	if err == nil {
		// First politely, so that what was found is kept; then the whole group.
		soft := time.AfterFunc(limit, func() { _ = syscall.Kill(cmd.Process.Pid, syscall.SIGTERM) })
		hard := time.AfterFunc(limit+15*time.Second, func() { _ = syscall.Kill(-cmd.Process.Pid, syscall.SIGKILL) })
		stop := context.AfterFunc(ctx, func() { _ = syscall.Kill(-cmd.Process.Pid, syscall.SIGTERM) })
		err = cmd.Wait()
		soft.Stop()
		hard.Stop()
		stop()
		_ = syscall.Kill(-cmd.Process.Pid, syscall.SIGKILL) // whatever it left behind
	}
	seconds := before + time.Since(begun).Seconds()
	switch kept, kerr := readKept(o.Out); {
	case kerr == nil && kept.Step == s.name:
		r = *kept
	case kerr != nil && !errors.Is(kerr, os.ErrNotExist):
		err = errors.Join(err, kerr)
	case err == nil:
		err = errors.New("the step ended without a result")
	}
	if err != nil && (r.Status == Failed || r.Status == Partial) && (r.Error == "" || r.Error == errUnderWay.Error()) {
		r.Error = fmt.Sprintf("%v: %s", err, tail.String())
	}
	r.Seconds = float64(int(seconds*10)) / 10
	return r
}

// environment returns the variables that a step's process needs before any library is opened.
func (s step) environment() []string {
	if s.name == "outputs" {
		// The provider falls back to TF32 where it finds no other kernel; CUDA's
		// libraries themselves do not.
		return []string{"NVIDIA_TF32_OVERRIDE=0"}
	}
	return nil
}

// check holds the means of a step.
type check struct {
	program
	device
}

// RunOne is the body of a step's process.
func RunOne(ctx context.Context, o Options, name string) error {
	if name == peerStep {
		_, index, _ := strings.Cut(o.Device, ":")
		n, err := strconv.Atoi(index)
		if err != nil {
			return fmt.Errorf("device %q: expected cuda:<n>", o.Device)
		}
		return peer(n)
	}
	i := slices.IndexFunc(steps, func(s step) bool { return s.name == name })
	if i < 0 {
		return fmt.Errorf("step %q: expected one of %s", name, strings.Join(Names(), ", "))
	}
	if o.Limit > 0 {
		var cancel context.CancelFunc
		ctx, cancel = context.WithTimeout(ctx, o.Limit)
		defer cancel()
	}
	r := StepResult{Step: name, Title: steps[i].title}
	if have, err := readKept(o.Out); err == nil && have.Step == name {
		r = *have
	}
	r.Status, r.Error = Partial, errUnderWay.Error()
	c := &check{program: program{o}}
	c.Quick = c.Quick || c.rehearsal()
	var err error
	c.device, err = openDevice(c.Device, c.rehearsal(), c.log())
	if err == nil {
		err = steps[i].run(ctx, c, &r)
		err = errors.Join(err, c.eng.Close())
	}
	r.Error = ""
	switch {
	case errors.Is(err, errMore), err != nil && ctx.Err() != nil:
		r.Status, r.Error = Partial, err.Error()
	case err != nil:
		r.Status, r.Error = Failed, err.Error()
	case slices.ContainsFunc(r.Verdicts, func(v Verdict) bool { return !v.OK }):
		r.Status = Missed
	default:
		r.Status = Passed
	}
	return r.keep(o.Out)
}

// errUnderWay is the error in a result that a step keeps before its end.
var errUnderWay = errors.New("ended in the midst")

// keep writes down what the step has found so far.
func (c *check) keep(r *StepResult) error { return r.keep(c.Out) }

// errMore: the step did a part, the next call does the rest.
var errMore = errors.New("not all done yet")
