package main

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"testing"

	"github.com/rogpeppe/go-internal/testscript"
	"go.yaml.in/yaml/v3"
)

func TestMain(m *testing.M) {
	testscript.Main(m, map[string]func(){"plan": main})
}

// TestScripts runs the command line as a person would; testdata/script has one
// file per behaviour. Beside testscript's commands there are
//
//	exits CODE COMMAND...   run a command and require its exit code
//	lines N FILE            require a number of lines
//	edit FILE OLD NEW       replace text in a file, which must be there
//	workflow FILE OUT       write the shell lines of a CI workflow that call plan
//	answers FILE N          write N samples' answers of the models small, middle, large
//	labelled FILE WIDTH N   write N labelled samples of WIDTH values
//	completions [mute]      serve two language models, tiny and big, at $COMPLETIONS
//	llmserver [STATUS]      serve the language model m at $LLM, or refuse everything
//	encoder FILE [NAME]     write a text encoder of free length, with a mask of that name
//	encoded MODEL SAMPLES LENGTH...   ask it at $HTTP, and require the right answers
//	operators FILE [TIMES]  compile a library of custom operators, Affine(x) = TIMES (2) · x + 1
//	custom FILE [DOMAIN]    write a model with that operator
//	outside FILE            write a model with its weights in FILE.data
//	served ARGS...          run `plan serve` in the background; $HTTP, $GRPC, $METRICS
//	drained [CODE]          end it with SIGTERM, and well or with an exit code
//	abandoned FIFO ARGS...  run plan, interrupt it once while it reads the pipe, and require exit code 4
//	interrupted FIRST ARGS...  run plan, interrupt it twice at once when it says FIRST, and require that it says what it kept
//	ask STATUS URL [BODY [HEADER...]]   an HTTP request
func TestScripts(t *testing.T) { testscript.Run(t, scripts(filepath.Join("testdata", "script"))) }

// scripts runs the scripts of a folder.
func scripts(dir string) testscript.Params {
	return testscript.Params{
		Dir: dir,
		Setup: func(e *testscript.Env) error {
			e.Setenv("INFERPLAN_ORT_LIB", os.Getenv("INFERPLAN_ORT_LIB"))
			wd, err := os.Getwd()
			if err != nil {
				return err
			}
			root := filepath.Join(wd, "..", "..")
			e.Setenv("ROOT", root)
			e.Setenv("GIT_CONFIG_GLOBAL", os.DevNull)
			// Most scripts ask about something else than what is kept back, and solve once.
			e.Setenv("INFERPLAN_MARGIN", "0.4")
			if e.Getenv("INFERPLAN_ORT_LIB") == "" {
				e.Setenv("INFERPLAN_ORT_LIB", filepath.Join(root, "third_party", "ort", "lib", "libonnxruntime.so.1"))
			}
			e.Setenv("INFERPLAN_MODEL_FILES", filepath.Join(root, "third_party", "models", "files"))
			return nil
		},
		Condition: func(cond string) (bool, error) {
			if cond == "engine" { // ONNX Runtime and the models are set up
				for _, f := range []string{"third_party/ort/lib/libonnxruntime.so.1", "third_party/models/files/light_squeezenet.onnx"} {
					if _, err := os.Stat(filepath.Join("..", "..", f)); err != nil {
						return false, nil
					}
				}
				return true, nil
			}
			if cond == "gpu" {
				_, err := os.Stat("/dev/nvidia0")
				return err == nil, nil
			}
			return false, fmt.Errorf("unknown condition %q", cond)
		},
		Cmds: map[string]func(*testscript.TestScript, bool, []string){
			"exits": exits,
			"lines": lines,
			"edit":  edit,

			"workflow": workflow,

			"answers":     answers,
			"labelled":    labelled,
			"completions": completions,
			"llmserver":   languageServer,

			"encoder": encoder,
			"encoded": encoded,

			"operators": operators,
			"custom":    custom,
			"outside":   outside,

			"served":  served,
			"drained": drained,
			"ask":     ask,
			"llm":     startLLM,
			"nats":    startNATS,

			"abandoned":   abandoned,
			"interrupted": interrupted,
		},
	}
}

func exits(ts *testscript.TestScript, neg bool, args []string) {
	if neg || len(args) < 2 {
		ts.Fatalf("usage: exits CODE COMMAND...")
	}
	want, err := strconv.Atoi(args[0])
	ts.Check(err)
	err = ts.Exec(args[1], args[2:]...)
	got := 0
	if err != nil {
		exit, ok := err.(*exec.ExitError)
		if !ok {
			ts.Fatalf("%v", err)
		}
		got = exit.ExitCode()
	}
	if got != want {
		ts.Fatalf("exit code %d, expected %d", got, want)
	}
}

func lines(ts *testscript.TestScript, neg bool, args []string) {
	if len(args) != 2 {
		ts.Fatalf("usage: lines N FILE")
	}
	want, err := strconv.Atoi(args[0])
	ts.Check(err)
	if got := strings.Count(ts.ReadFile(args[1]), "\n"); (got == want) == neg {
		ts.Fatalf("%d lines, expected %d", got, want)
	}
}

func edit(ts *testscript.TestScript, neg bool, args []string) {
	if neg || len(args) != 3 {
		ts.Fatalf("usage: edit FILE OLD NEW")
	}
	text := ts.ReadFile(args[0])
	if !strings.Contains(text, args[1]) {
		ts.Fatalf("%s does not contain %q", args[0], args[1])
	}
	ts.Check(os.WriteFile(ts.MkAbs(args[0]), []byte(strings.Replace(text, args[1], args[2], 1)), 0o644))
}

// workflow writes what a workflow of GitHub or GitLab would run of plan.
func workflow(ts *testscript.TestScript, neg bool, args []string) {
	if neg || len(args) != 2 {
		ts.Fatalf("usage: workflow FILE OUT")
	}
	type steps struct {
		Steps  []struct{ Run string }
		Script []string
	}
	var doc struct {
		Jobs map[string]steps
		Plan steps
	}
	ts.Check(yaml.Unmarshal([]byte(ts.ReadFile(args[0])), &doc))
	out := doc.Plan.Script
	for _, job := range doc.Jobs {
		for _, s := range job.Steps {
			out = append(out, s.Run)
		}
	}
	out = slices.DeleteFunc(out, func(line string) bool { return !strings.HasPrefix(line, "plan ") })
	if len(out) == 0 {
		ts.Fatalf("%s runs no plan", args[0])
	}
	ts.Check(os.WriteFile(ts.MkAbs(args[1]), []byte(strings.Join(out, "\n")+"\n"), 0o644))
}

// answers writes records in which the larger model is right more often, and
// certainty tells right from wrong.
func answers(ts *testscript.TestScript, neg bool, args []string) {
	if neg || len(args) != 2 {
		ts.Fatalf("usage: answers FILE N")
	}
	n, err := strconv.Atoi(args[1])
	ts.Check(err)
	rng := rand.New(rand.NewPCG(7, 7))
	var b strings.Builder
	b.WriteString("sample_id,model,correct,certainty\n")
	for i := range n {
		for k, model := range []string{"small", "middle", "large"} {
			right, certainty := 0, rng.Float64()
			if rng.Float64() < .7+.1*float64(k) {
				right, certainty = 1, max(certainty, rng.Float64())
			}
			fmt.Fprintf(&b, "%d,%s,%d,%.4f\n", i, model, right, certainty)
		}
	}
	ts.Check(os.WriteFile(ts.MkAbs(args[0]), []byte(b.String()), 0o644))
}

// Every verb has help with an example, and completion works.
func TestEveryVerbHasHelpAndExample(t *testing.T) {
	for _, c := range newRootCommand().Commands() {
		if c.Hidden || c.Name() == "help" || c.Name() == "completion" || c.Name() == "import" || c.Name() == "export" {
			continue
		}
		if c.Short == "" || c.Example == "" {
			t.Errorf("plan %s: no short help or no example", c.Name())
		}
	}
	for _, shell := range []string{"bash", "zsh", "fish", "powershell"} {
		var out, stderr bytes.Buffer
		if code := executeCommand(context.Background(), []string{"completion", shell}, &out, &stderr); code != 0 || out.Len() == 0 {
			t.Errorf("completion %s: exit %d, %s", shell, code, stderr.String())
		}
	}
}

// Flags whose values are a fixed set complete to that set, and to no file.
func TestFlagsCompleteToTheirValues(t *testing.T) {
	for _, c := range []struct{ line, want string }{
		{"solve --method", "gear"}, {"solve --algorithm", "dart-r"}, {"solve --objective", "power"}, {"solve --gpu-rounding", "fractional"},
		{"solve --margin", "auto"},
		{"simulate --policy", "reserve"}, {"simulate --network", "stages"},
		{"serve --engine", "replay"}, {"serve --policy", "reserve"}, {"load --protocol", "grpc"}, {"check --format", "junit"},
		{"profile --on", "cpu"}, {"profile --ranges", "used"}, {"profile --tf32", "off"}, {"profile --score", "entropy"},
		{"import trace --spread", "uniform"}, {"import records --score", "top1"},
		{"schema", "cluster"}, {"models write", "squeezenet"}, {"import", "trtexec"}, {"", "solve"},
	} {
		var out, stderr bytes.Buffer
		args := append(append([]string{"__complete"}, strings.Fields(c.line)...), "")
		if code := executeCommand(context.Background(), args, &out, &stderr); code != 0 || !strings.Contains(out.String(), c.want) {
			t.Errorf("plan %s <tab>: exit %d, found %q, expected %s among them", c.line, code, out.String(), c.want)
		}
		if !strings.Contains(out.String(), ":4\n") { // cobra's directive: no file names
			t.Errorf("plan %s <tab> completes file names, too: %q", c.line, out.String())
		}
	}
}

// full is a disk without room.
type full struct{}

func (full) Write([]byte) (int, error) { return 0, errors.New("no space left on device") }

// What cannot be printed is a failure, whatever prints it.
func TestFullStdout(t *testing.T) {
	for _, args := range [][]string{{"version"}, {"version", "--json"}, {"models"}, {"schema", "plan"}} {
		var stderr bytes.Buffer
		if code := executeCommand(context.Background(), args, full{}, &stderr); code != exitEnvironment || !strings.Contains(stderr.String(), "no space left") {
			t.Errorf("%v: exit %d, expected %d: %s", args, code, exitEnvironment, stderr.String())
		}
	}
}
