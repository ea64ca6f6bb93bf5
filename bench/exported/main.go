package main

import (
	"bytes"
	"context"
	"errors"
	"flag"
	"fmt"
	"io"
	"os"
	"os/exec"
	"os/signal"
	"path/filepath"
	"strings"
	"syscall"
	"time"

	"inferplan/bench/figures"
	"inferplan/engine"
	"inferplan/engine/graph"
	"inferplan/engine/ort"
	"inferplan/formats"
)

type options struct {
	plan, third, figures, docs, only string
	budget                           time.Duration
}

func main() {
	o := &options{}
	f := flag.NewFlagSet("bench-exported", flag.ContinueOnError)
	f.StringVar(&o.plan, "plan", "bin/plan", "the program")
	f.StringVar(&o.third, "third-party", "third_party", "folder of the models")
	f.StringVar(&o.figures, "figures", "", "file for the figures as JSON")
	f.StringVar(&o.docs, "docs", "", "document whose table is made again")
	f.StringVar(&o.only, "only", "", "models whose file has this in its name")
	f.DurationVar(&o.budget, "budget", time.Second, "time for measuring a model")
	err := f.Parse(os.Args[1:])
	if errors.Is(err, flag.ErrHelp) {
		return
	}
	if err == nil {
		ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
		defer stop()
		err = o.run(ctx)
	}
	if err != nil {
		fmt.Fprintln(os.Stderr, "bench-exported:", err)
		os.Exit(1)
	}
}

// outcome is how far a model came.
type outcome struct {
	*exported
	stage  string // profile, solve, serve, request, answer: where it ended
	text   string // of the message, where it did not come through
	code   int    // exit code of the command that ended it
	differ float64
	right  bool
}

func (o *options) run(ctx context.Context) error {
	eng, err := ort.Open("")
	if err != nil {
		return err
	}
	defer eng.Close()
	var all []outcome
	for i := range cases {
		c := &cases[i]
		if !strings.Contains(c.file, o.only) {
			continue
		}
		x, err := o.take(ctx, eng, c)
		if err != nil {
			return fmt.Errorf("%s: %w", c.file, err)
		}
		fmt.Println(x.row())
		all = append(all, *x)
	}
	if o.docs != "" {
		if err := document(o.docs, all); err != nil {
			return err
		}
	}
	if o.figures == "" {
		return nil
	}
	answered, refused, five, worst := 0, 0, 0, 0.0
	for _, x := range all {
		switch {
		case x.right && x.refused == "":
			answered++
			worst = max(worst, x.differ)
		case x.right:
			refused++
		}
		if x.code == 5 {
			five++
		}
	}
	figure := func(claim, asked string, v float64, holds bool) figures.Figure {
		return figures.Figure{Claim: claim, Source: "models as people exported them", Asked: asked, Measured: v, Holds: figures.If(holds), Command: "make bench-exported"}
	}
	return figures.Put(o.figures,
		figure("exported models whose answers equal ONNX Runtime's", "at least 20", float64(answered), answered >= 20),
		figure("largest difference of an answer, relative to the larger of 1 and the value", "at most 1e-4", worst, worst <= 1e-4),
		figure("exported files refused with the form and the mend", "3", float64(refused), refused == 3),
		figure("model files that end a command with exit code 5", "0", float64(five), five == 0))
}

// take takes a model through all steps.
func (o *options) take(ctx context.Context, eng *ort.Engine, c *exported) (*outcome, error) {
	x := &outcome{exported: c, stage: "profile"}
	dir, err := os.MkdirTemp("", "exported-")
	if err != nil {
		return nil, err
	}
	defer os.RemoveAll(dir)
	file, err := filepath.Abs(filepath.Join(o.third, c.file))
	if err != nil {
		return nil, err
	}
	profile, plan := filepath.Join(dir, "profile.json"), filepath.Join(dir, "plan.json")
	for _, step := range [][]string{
		append([]string{"profile", file, "--batches", "1,2", "--budget", o.budget.String(), "-o", profile}, c.flags...),
		{"solve", "--profile", profile, "--slo", "5s", "-o", plan},
	} {
		x.stage = step[0]
		if x.text, x.code, err = o.command(ctx, step...); err != nil {
			return nil, err
		}
		if x.code != 0 {
			x.right = c.refused != "" && x.code == 2 && strings.Contains(x.text, c.refused)
			return x, nil
		}
	}
	p, err := formats.ReadPlan(plan)
	if err != nil {
		return nil, err
	}
	want, inputs, err := expected(ctx, eng, file, c, &p.Deployment[0])
	if err != nil {
		return nil, err
	}
	x.stage = "serve"
	return x, o.serve(ctx, x, plan, filepath.Dir(file), &p.Deployment[0], inputs, want)
}

// command runs plan to its end and returns the last line that it says.
func (o *options) command(ctx context.Context, args ...string) (last string, code int, err error) {
	whole := ctx
	ctx, cancel := context.WithTimeout(ctx, 3*time.Minute)
	defer cancel()
	out, err := exec.CommandContext(ctx, o.plan, args...).CombinedOutput()
	lines := strings.Split(strings.TrimSpace(string(out)), "\n")
	var exit *exec.ExitError
	if errors.As(err, &exit) && whole.Err() == nil {
		return lines[len(lines)-1], exit.ExitCode(), nil
	}
	return lines[len(lines)-1], 0, err
}

// expected runs the file itself, as it is, and returns its outputs for a drawn request.
func expected(ctx context.Context, eng *ort.Engine, file string, c *exported, m *formats.Deployed) (map[string]ort.Output, []tensor, error) {
	data, err := os.ReadFile(file)
	if err != nil {
		return nil, nil, err
	}
	inputs, err := inputsOf(m)
	if err != nil {
		return nil, nil, err
	}
	var feeds []engine.Tensor
	feed := func(name, datatype string, shape []int64, data []byte) error {
		t, err := engine.NewHostTensor(engine.Spec{Name: name, Type: types[datatype], Shape: shape}, 1, data)
		feeds = append(feeds, t)
		return err
	}
	for _, in := range inputs {
		if err := feed(in.Name, in.Datatype, in.Shape, in.data); err != nil {
			return nil, nil, err
		}
	}
	for _, k := range m.Constants {
		value, err := graph.Literal{Values: k.Value}.Bytes(types[k.DType])
		if err != nil {
			return nil, nil, err
		}
		if err := feed(k.Name, k.DType, []int64{}, value); err != nil {
			return nil, nil, err
		}
	}
	var names []string
	for _, out := range m.Outputs {
		if c.file != files+"sklearn_randomforest.onnx" || out.Name != "probabilities" {
			names = append(names, out.Name)
		}
	}
	want, err := eng.Eval(ctx, data, feeds, names, engine.Options{}, -1)
	return want, inputs, err
}

// serve serves the plan, asks for one answer and holds it against what is expected.
func (o *options) serve(ctx context.Context, x *outcome, plan, models string, m *formats.Deployed, inputs []tensor, want map[string]ort.Output) error {
	ctx, cancel := context.WithTimeout(ctx, 2*time.Minute)
	defer cancel()
	cmd := exec.CommandContext(ctx, o.plan, "serve", plan, "--models", models, "--http", "127.0.0.1:0", "--grpc", "off", "--metrics", "127.0.0.1:0")
	cmd.Cancel = func() error { return cmd.Process.Signal(syscall.SIGTERM) }
	cmd.WaitDelay = 10 * time.Second
	var says bytes.Buffer
	pipe, err := cmd.StderrPipe()
	if err != nil {
		return err
	}
	if err := cmd.Start(); err != nil {
		return err
	}
	address := make(chan string, 1)
	done := make(chan struct{})
	go func() {
		defer close(done)
		buf := make([]byte, 4096)
		for sent := false; ; {
			n, err := pipe.Read(buf)
			says.Write(buf[:n])
			if _, rest, ok := strings.Cut(says.String(), ": HTTP "); ok && !sent && strings.Contains(rest, ",") {
				address <- rest[:strings.Index(rest, ",")]
				sent = true
			}
			if err != nil {
				return
			}
		}
	}()
	var answer map[string]tensor
	select {
	case <-done:
		x.text = lastLine(says.String())
		if err := cmd.Wait(); err != nil {
			x.code = cmd.ProcessState.ExitCode()
		}
		return nil
	case <-ctx.Done():
		return ctx.Err()
	case at := <-address:
		x.stage = "request"
		for range 300 { // until the models are there
			if answer, err = ask(ctx, at, m.Model, inputs); err == nil || ctx.Err() != nil || !strings.Contains(err.Error(), "503") && !strings.Contains(err.Error(), "refused") {
				break
			}
			time.Sleep(100 * time.Millisecond)
		}
	}
	ended := cmd.Process.Signal(syscall.SIGTERM)
	<-done
	if werr := cmd.Wait(); ended != nil && werr != nil {
		return werr
	}
	if err != nil {
		x.text = lastLine(err.Error() + "\n" + lastLine(says.String()))
		return nil
	}
	x.stage = "answer"
	for name, w := range want {
		got, ok := answer[name]
		if !ok {
			x.text = fmt.Sprintf("no output %q", name)
			return nil
		}
		d, err := differ(w.Type, got.data, w.Data)
		if err != nil {
			x.text = fmt.Sprintf("output %q: %v", name, err)
			return nil
		}
		x.differ = max(x.differ, d)
	}
	x.right = x.differ <= 1e-4
	return nil
}

func lastLine(s string) string {
	lines := strings.Split(strings.TrimSpace(s), "\n")
	return lines[len(lines)-1]
}

// row is the model's row of the table.
func (x *outcome) row() string {
	name := strings.TrimSuffix(filepath.Base(x.file), ".onnx")
	how, what := strings.Join(x.flags, " "), ""
	switch {
	case x.right && x.refused == "":
		what = fmt.Sprintf("equal, to %.1e", x.differ)
	case x.right:
		what = "refused: " + x.text[strings.LastIndex(x.text, ": ")+2:]
	default:
		what = fmt.Sprintf("**%s: %s**", x.stage, x.text)
	}
	return fmt.Sprintf("| %s | %s | `%s` | %s |", name, x.form, strings.TrimSpace("plan profile "+filepath.Base(x.file)+" "+how), strings.ReplaceAll(what, "|", `\|`))
}

const begin, end = "<!-- models of bench/exported -->\n", "<!-- end of models -->\n"

// document puts the table between its marks.
func document(path string, all []outcome) error {
	data, err := os.ReadFile(path)
	if err != nil {
		return err
	}
	head, rest, ok := strings.Cut(string(data), begin)
	_, tail, closed := strings.Cut(rest, end)
	if !ok || !closed {
		return fmt.Errorf("%s has no place for the models", path)
	}
	var b strings.Builder
	b.WriteString(head + begin + "| model | form | command | answer |\n|---|---|---|---|\n")
	for i := range all {
		b.WriteString(all[i].row() + "\n")
	}
	_, err = io.WriteString(&b, end+tail)
	if err == nil {
		_, err = formats.WriteBytes(path, []byte(b.String()), formats.Force(true))
	}
	return err
}
