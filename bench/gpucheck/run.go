package gpucheck

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"time"

	"inferplan/engine"
	"inferplan/engine/ort"
)

// Options of a check.
type Options struct {
	Self   string        // this program
	Device string        // cuda:0, or cpu for a rehearsal
	Out    string        // folder for results
	Work   string        // folder for models and what else steps need
	Digits string        // folder with the digits family and its samples; empty: the cascade step is left out
	Limit  time.Duration // of this call; 0: none
	Steps  []string      // only these; empty: all
	Again  bool          // do again what is done
	Quick  bool          // small sizes: always so on a CPU
	Mirror string        // folder that gets a copy of the results while the check runs; empty: none
	Log    io.Writer
}

// Document is the result: gpu-check.json.
type Document struct {
	Format    string       `json:"format"`
	Rehearsal bool         `json:"rehearsal"` // on a CPU: no figure is about a GPU
	Device    string       `json:"device"`
	Name      string       `json:"name,omitempty"`
	Driver    string       `json:"driver,omitempty"`
	Engine    string       `json:"engine,omitempty"`
	Steps     []StepResult `json:"steps"`
}

// documentFormat names the document's version.
const documentFormat = "inferplan.gpu-check/v1"

// How a step ended.
const (
	Passed  = "passed"  // every verdict holds, or there is none
	Missed  = "missed"  // it ran, and a figure is not what was promised
	Failed  = "failed"  // it could not be done
	Partial = "partial" // its time was up; the next call goes on
)

// StepResult is what a step found.
type StepResult struct {
	Step     string    `json:"step"`
	Title    string    `json:"title"`
	Status   string    `json:"status"`
	Seconds  float64   `json:"seconds"`
	Verdicts []Verdict `json:"verdicts,omitempty"`
	Tables   []Table   `json:"tables,omitempty"`
	Notes    []string  `json:"notes,omitempty"`
	Error    string    `json:"error,omitempty"`
	Files    []string  `json:"files,omitempty"` // written beside this document
}

// Verdict holds a figure against what is promised.
type Verdict struct {
	What string  `json:"what"`
	Want string  `json:"want"`
	Got  float64 `json:"got"`
	OK   bool    `json:"ok"`
}

// Table is rows of text for people, and for who reads the document.
type Table struct {
	Title  string     `json:"title"`
	Header []string   `json:"header"`
	Rows   [][]string `json:"rows"`
}

// judged tells whether an earlier call came to a verdict whose name begins so.
func (r *StepResult) judged(prefix string) bool {
	return slices.ContainsFunc(r.Verdicts, func(v Verdict) bool { return strings.HasPrefix(v.What, prefix) })
}

// table is the result's table of a title, with the rows of earlier calls.
func (r *StepResult) table(title string, header ...string) *Table {
	for i := range r.Tables {
		if r.Tables[i].Title == title {
			return &r.Tables[i]
		}
	}
	r.Tables = append(r.Tables, Table{Title: title, Header: header})
	return &r.Tables[len(r.Tables)-1]
}

func (r *StepResult) verdict(what, want string, got float64, ok bool) {
	v := Verdict{what, want, got, ok}
	if i := slices.IndexFunc(r.Verdicts, func(v Verdict) bool { return v.What == what }); i >= 0 {
		r.Verdicts[i] = v // of an earlier call
		return
	}
	r.Verdicts = append(r.Verdicts, v)
}

// wrote names a file beside the document.
func (r *StepResult) wrote(name string) {
	if !slices.Contains(r.Files, name) {
		r.Files = append(r.Files, name)
	}
}

func (r *StepResult) note(format string, a ...any) {
	if text := fmt.Sprintf(format, a...); !slices.Contains(r.Notes, text) {
		r.Notes = append(r.Notes, text)
	}
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

// leastTime is what a step is at least given.
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

func (v Verdict) String() string {
	mark := "ok  "
	if !v.OK {
		mark = "MISS"
	}
	return fmt.Sprintf("%s %s: %.4g, asked %s", mark, v.What, v.Got, v.Want)
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

// keptIn is the file for what a step has found so far, and at its end for its
// result: a step that is killed in the midst leaves that, and goes on from there.
func keptIn(out string) string { return filepath.Join(out, "gpu-check-step.json") }

func (r *StepResult) keep(out string) error {
	data, err := json.MarshalIndent(r, "", " ")
	if err != nil {
		return err
	}
	return replace(keptIn(out), append(data, '\n'))
}

func readKept(out string) (*StepResult, error) {
	data, err := os.ReadFile(keptIn(out))
	if err != nil {
		return nil, err
	}
	r := &StepResult{}
	if err := json.Unmarshal(data, r); err != nil {
		return nil, fmt.Errorf("%s: %w", keptIn(out), err)
	}
	return r, nil
}

// mirrorEvery is how often the results are copied to Options.Mirror.
const mirrorEvery = 10 * time.Second

// mirror copies the results again and again until it is told to end, so that a
// call that is killed leaves what it found, too.
func mirror(ctx context.Context, o *Options) (end func()) {
	if o.Mirror == "" {
		return func() {}
	}
	ctx, cancel := context.WithCancel(context.WithoutCancel(ctx))
	var wg sync.WaitGroup
	wg.Go(func() {
		for {
			select {
			case <-ctx.Done():
				copyResults(o)
				return
			case <-time.After(mirrorEvery):
				copyResults(o)
			}
		}
	})
	return func() { cancel(); wg.Wait() }
}

func copyResults(o *Options) {
	err := os.MkdirAll(o.Mirror, 0o755)
	files, gerr := filepath.Glob(filepath.Join(o.Out, "*.*"))
	err = errors.Join(err, gerr)
	for _, f := range files {
		if name := filepath.Base(f); strings.HasSuffix(name, ".part") || name[0] == '.' || name == againFile {
			continue
		}
		data, rerr := os.ReadFile(f)
		if rerr == nil {
			rerr = replace(filepath.Join(o.Mirror, filepath.Base(f)), data)
		} else if errors.Is(rerr, os.ErrNotExist) { // a step has ended meanwhile
			rerr = nil
		}
		err = errors.Join(err, rerr)
	}
	// What the folder no longer holds was for a step under way only.
	if _, serr := os.Stat(keptIn(o.Out)); errors.Is(serr, os.ErrNotExist) {
		_ = os.Remove(keptIn(o.Mirror))
	}
	if err != nil {
		fmt.Fprintf(o.Log, "copy of the results to %s: %v\n", o.Mirror, err)
	}
}

// environment is what a step's process needs before any library is opened.
func (s step) environment() []string {
	if s.name == "outputs" {
		// The provider falls back to TF32 where it finds no other kernel; CUDA's
		// libraries themselves do not.
		return []string{"NVIDIA_TF32_OVERRIDE=0"}
	}
	return nil
}

// lastBytes keeps the end of what is written.
type lastBytes struct{ b []byte }

func (l *lastBytes) Write(p []byte) (int, error) {
	l.b = append(l.b, p...)
	if over := len(l.b) - 1000; over > 0 {
		l.b = append(l.b[:0], l.b[over:]...)
	}
	return len(p), nil
}

func (l *lastBytes) String() string { return strings.Join(strings.Fields(string(l.b)), " ") }

// check is what a step works with.
type check struct {
	Options
	eng *ort.Engine
	dev engine.Device
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
	c := &check{Options: o}
	c.Quick = c.Quick || c.rehearsal()
	err := c.open()
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

// errUnderWay is what stands in a result that a step keeps before its end.
var errUnderWay = errors.New("ended in the midst")

// keep writes down what the step has found so far.
func (c *check) keep(r *StepResult) error { return r.keep(c.Out) }

// errMore: the step did a part, the next call does the rest.
var errMore = errors.New("not all done yet")

func (c *check) rehearsal() bool { return strings.HasPrefix(c.Device, "cpu") }

func (c *check) open() error {
	var err error
	if c.eng, err = ort.Open(""); err != nil {
		return err
	}
	if c.rehearsal() {
		cpus, err := engine.CPUs()
		if err != nil {
			return err
		}
		c.dev = engine.CPUDevice(cpus[len(cpus)-1])
		return nil
	}
	all, err := c.eng.Devices()
	if err != nil {
		return err
	}
	c.dev, err = engine.FindDevice(all, c.Device)
	return err
}

// kind is what profiles and plans call the device.
func (c *check) kind() string { return c.dev.Kind }

// plan runs a verb of this program and returns what it printed.
func (c *check) plan(ctx context.Context, args ...string) (string, error) {
	cmd := exec.CommandContext(ctx, c.Self, args...)
	cmd.Cancel = func() error { return cmd.Process.Signal(syscall.SIGINT) }
	cmd.WaitDelay = 20 * time.Second
	cmd.Dir = c.Work
	var out bytes.Buffer
	var said lastBytes
	cmd.Stdout, cmd.Stderr = io.MultiWriter(&out, c.log()), io.MultiWriter(c.log(), &said)
	fmt.Fprintf(c.log(), "$ plan %s\n", strings.Join(args, " "))
	if err := cmd.Run(); err != nil {
		if ctx.Err() != nil {
			err = errors.Join(err, ctx.Err())
		}
		return out.String(), fmt.Errorf("plan %s: %w: %s", strings.Join(args, " "), err, said.String())
	}
	return out.String(), nil
}

func (c *check) log() io.Writer {
	if c.Log == nil {
		return os.Stderr
	}
	return c.Log
}

// models writes models with weights into the work folder, those that are not
// there yet, and returns their paths.
func (c *check) models(ctx context.Context, names ...string) ([]string, error) {
	var paths, missing []string
	for _, n := range names {
		p := filepath.Join(c.Work, "models", n+".onnx")
		paths = append(paths, p)
		if _, err := os.Stat(p); err != nil {
			missing = append(missing, n)
		}
	}
	if len(missing) > 0 {
		if _, err := c.plan(ctx, append([]string{"models", "write", "--dir", filepath.Join(c.Work, "models")}, missing...)...); err != nil {
			return nil, err
		}
	}
	return paths, nil
}

func open(o *Options) (*Document, error) {
	doc := &Document{Format: documentFormat, Device: o.Device, Rehearsal: strings.HasPrefix(o.Device, "cpu")}
	data, err := os.ReadFile(filepath.Join(o.Out, "gpu-check.json"))
	if errors.Is(err, os.ErrNotExist) {
		return doc, nil
	}
	if err != nil {
		return nil, fmt.Errorf("read what was done: %w", err)
	}
	have := &Document{}
	if err := json.Unmarshal(data, have); err != nil {
		return nil, fmt.Errorf("%s: %w", filepath.Join(o.Out, "gpu-check.json"), err)
	}
	if have.Format != documentFormat || have.Device != o.Device {
		return nil, fmt.Errorf("%s holds results of %s (%s): choose another folder with --out", o.Out, have.Device, have.Format)
	}
	return have, nil
}

// sameGPU refuses to mix the results of two kinds of GPU, as of machines that one
// has in turn, and notes which it is.
func (d *Document) sameGPU(o *Options) error {
	gpus, err := listGPUs()
	if err != nil || d.Rehearsal {
		return nil // the step doctor says what is wrong
	}
	i := slices.IndexFunc(gpus, func(g engine.Device) bool { return g.ID == o.Device })
	if i < 0 {
		return nil
	}
	if d.Name != "" && d.Name != gpus[i].Name {
		return fmt.Errorf("%s holds results of %s, here is %s: choose another folder with --out", o.Out, d.Name, gpus[i].Name)
	}
	d.Name, d.Driver = gpus[i].Name, gpus[i].Driver
	return nil
}

// listGPUs is replaced by tests.
var listGPUs = ort.GPUs

func (d *Document) find(name string) *StepResult {
	for i := range d.Steps {
		if d.Steps[i].Step == name {
			return &d.Steps[i]
		}
	}
	return nil
}

func (d *Document) put(r StepResult) {
	if have := d.find(r.Step); have != nil {
		*have = r
		return
	}
	d.Steps = append(d.Steps, r)
	order := Names()
	slices.SortStableFunc(d.Steps, func(a, b StepResult) int { return slices.Index(order, a.Step) - slices.Index(order, b.Step) })
}

// write puts the document and its tables into the folder, whole.
func (d *Document) write(o *Options) error {
	if p, err := readProfile(filepath.Join(o.Out, "profile.json")); err == nil && len(p.Devices) > 0 {
		x := p.Devices[0]
		d.Name, d.Driver, d.Engine = x.Name, x.Driver, x.Engine+" "+x.EngineVersion
	}
	data, err := json.MarshalIndent(d, "", " ")
	if err != nil {
		return err
	}
	var text bytes.Buffer
	d.Print(&text)
	return errors.Join(replace(filepath.Join(o.Out, "gpu-check.json"), append(data, '\n')), replace(filepath.Join(o.Out, "gpu-check.txt"), text.Bytes()))
}

func replace(path string, data []byte) error {
	if err := os.WriteFile(path+".part", data, 0o644); err != nil {
		return fmt.Errorf("write results: %w", err)
	}
	return os.Rename(path+".part", path)
}
