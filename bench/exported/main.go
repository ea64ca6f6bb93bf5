package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"os"
	"os/signal"
	"path/filepath"
	"strings"
	"syscall"
	"time"

	"inferplan/bench/figures"
	"inferplan/engine/ort"
)

type options struct {
	plan, third, figures, doc, only string
	budget, patience                time.Duration
	call                            string // of make, that measures this
	drives                          bool   // models at the rates that their plans state, instead of asking each once
}

func main() {
	o := &options{}
	f := flag.NewFlagSet("bench-exported", flag.ContinueOnError)
	f.StringVar(&o.plan, "plan", "bin/plan", "the program")
	f.StringVar(&o.third, "third-party", "third_party", "folder of the models")
	f.StringVar(&o.figures, "figures", "", "file that the figures are put into; without -only")
	f.StringVar(&o.doc, "doc", "", "document that shows the figures and the models; without -only")
	f.StringVar(&o.only, "only", "", "models whose file has this in its name")
	f.DurationVar(&o.budget, "budget", time.Second, "time for measuring a model")
	f.DurationVar(&o.patience, "patience", 20*time.Minute, "time after which a command is stopped")
	f.BoolVar(&o.drives, "drive", false, "instead of asking each model once, drive ten at the rates that their plans state; on a quiet machine")
	err := f.Parse(os.Args[1:])
	o.call = figures.Command(f, "exported")
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

func (o *options) run(ctx context.Context) error {
	if o.drives {
		return o.driveAll(ctx)
	}
	eng, err := ort.Open("")
	if err != nil {
		return err
	}
	defer eng.Close()
	fmt.Print(tableHead)
	var all []outcome
	for i := range cases {
		c := &cases[i]
		if !strings.Contains(c.file, o.only) {
			continue
		}
		x, err := o.take(ctx, eng, c)
		if ctx.Err() != nil {
			return ctx.Err()
		}
		if err != nil {
			x.text, x.right = err.Error(), false
		}
		fmt.Println(x.row())
		all = append(all, *x)
	}
	list := measured(all)
	if o.only == "" && o.figures != "" {
		if err := figures.Put(o.figures, o.call, list...); err != nil {
			return err
		}
	}
	if o.only == "" && o.figures != "" && o.doc != "" {
		list, err := figures.Read(o.figures)
		if err == nil {
			err = figures.Show(o.doc, "exported", list)
		}
		if err == nil {
			err = show(o.doc, all)
		}
		if err != nil {
			return err
		}
	}
	return failed(all)
}

// failed is an error where models did not come through.
func failed(all []outcome) error {
	var names []string
	for i := range all {
		if !all[i].right {
			names = append(names, all[i].name())
		}
	}
	if names == nil {
		return nil
	}
	return fmt.Errorf("%d of %d models did not come through: %s", len(names), len(all), strings.Join(names, ", "))
}

// measured are the figures of a whole run.
func measured(all []outcome) []figures.Figure {
	answered, batched, refused, five, worst := 0, 0, 0, 0, 0.0
	for _, x := range all {
		switch {
		case x.right && x.refused == "":
			answered++
			if x.limit == 0 {
				worst = max(worst, x.differ)
			}
			if x.batch > 1 {
				batched++
			}
		case x.right:
			refused++
		}
		if x.code == 5 {
			five++
		}
	}
	asked := 0
	for i := range cases {
		if cases[i].refused != "" {
			asked++
		}
	}
	figure := func(claim, asked string, v float64, holds bool, note string) figures.Figure {
		return figures.Figure{Claim: claim, Source: "models as people exported them", Asked: asked, Measured: v, Holds: figures.If(holds), Note: note}
	}
	whole := fmt.Sprintf("%d files", len(all))
	return []figures.Figure{
		figure("exported models whose answers equal ONNX Runtime's", "at least 20", float64(answered), answered >= 20, whole),
		figure("of them in batches above 1, of several samples and of several requests", "at least 10", float64(batched), batched >= 10, "the others run one request at a time"),
		figure("largest difference of an answer, relative to the larger of 1 and the value", fmt.Sprint("at most ", differs), worst, worst <= differs, "without isnet_fp16, whose float16 features differ by .0029 between ONNX Runtime's own optimisation levels"),
		figure("exported files refused with the form and the flag or step that mends it", fmt.Sprint(asked), float64(refused), refused == asked, ""),
		figure("model files that end a command with exit code 5", "0", float64(five), five == 0, ""),
	}
}

const tableHead = "| model | form | command | answer |\n|---|---|---|---|\n"

func (x *outcome) name() string { return strings.TrimSuffix(filepath.Base(x.file), ".onnx") }

// row is the model's row of the table.
func (x *outcome) row() string {
	how, what := strings.Join(x.flags, " "), ""
	switch {
	case x.right && x.refused == "":
		what = fmt.Sprintf("equal, to %.1g, %s", x.differ, x.batches)
	case x.right:
		what = "refused: " + x.text
		if _, reason, ok := strings.Cut(x.text, "bad ONNX model: "); ok {
			what = "refused: " + reason
		}
	default:
		what = fmt.Sprintf("**%s: %s**", x.stage, x.text)
	}
	return fmt.Sprintf("| %s | %s | `%s` | %s |", x.name(), x.form, strings.TrimSpace("plan profile "+filepath.Base(x.file)+" "+how), strings.ReplaceAll(what, "|", `\|`))
}

const begin, end = "<!-- models of bench/exported -->\n", "<!-- end of models -->\n"

// show puts the table of models between its marks.
func show(path string, all []outcome) error {
	var b strings.Builder
	b.WriteString(tableHead)
	for i := range all {
		b.WriteString(all[i].row() + "\n")
	}
	return figures.Replace(path, begin, end, b.String())
}
