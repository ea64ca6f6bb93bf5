package main

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"

	"inferplan/bench/served"
	"inferplan/formats"
)

// run is a part that runs: the flags, its result, and the device with the engine that runs models there. After an error, calls do nothing.
type run struct {
	options
	result
	device
	err error
}

// check keeps an error and returns whether there is none so far.
func (c *run) check(err error) bool {
	c.err = errors.Join(c.err, err)
	return c.err == nil
}

func exists(path string) bool { _, err := os.Stat(path); return err == nil }

func (c *run) outPath(name string) string { return filepath.Join(c.out, name) }

func (c *run) workPath(name string) string { return filepath.Join(c.work, name) }

// pick returns few at small sizes, and many otherwise.
func pick[T any](c *run, many, few T) T {
	if c.quick {
		return few
	}
	return many
}

// command prepares a verb of plan in the work folder. What it says besides its output goes to the log.
func (c *run) command(args ...string) *exec.Cmd {
	cmd := exec.Command(c.plan, args...)
	cmd.Dir, cmd.Stderr = c.work, os.Stderr
	fmt.Fprintf(os.Stderr, "$ plan %s\n", strings.Join(args, " "))
	return cmd
}

// try runs a verb and returns what it printed, which the part's text gets, too, unless it is JSON.
func (c *run) try(args ...string) ([]byte, error) {
	if c.err != nil {
		return nil, c.err
	}
	out, err := c.command(args...).Output()
	if !json.Valid(out) {
		c.text.Write(out)
	}
	return out, err
}

// call runs a verb that must end with 0.
func (c *run) call(args ...string) {
	if _, err := c.try(args...); err != nil && c.err == nil {
		c.check(fmt.Errorf("plan %s: %w", strings.Join(args, " "), err))
	}
}

// model returns the path of a model with weights, which it writes into a folder where it is not there.
func (c *run) model(folder, name string) string {
	path := filepath.Join(folder, name+".onnx")
	if !exists(path) {
		c.call("models", "write", "--dir", folder, name)
	}
	return path
}

// profile measures models, one after the other, each for so many seconds.
func (c *run) profile(file string, names []string, batches string, seconds int, more ...string) {
	blocks := "10"
	if c.quick {
		batches, blocks, seconds = "1,2", "4", 5+seconds/10
	}
	for _, name := range names {
		args := []string{"profile", c.model(c.workPath("models"), name), "--on", c.options.device, "--batches", batches, "--blocks", blocks, "--budget", strconv.Itoa(seconds) + "s", "-o", file}
		c.call(append(args, more...)...)
	}
}

// solve plans a workload for a cluster of one pool of the device, and returns the plan, and what plan said; if there is none, it is nil.
func (c *run) solve(name, profile, workload, pool string, more ...string) (*formats.Plan, []byte) {
	at := c.workPath(name)
	_ = os.Remove(at + ".json")
	pool = fmt.Sprintf("format: inferplan.cluster/v1\npools:\n- {device: %s, %s}\n", c.target.Kind, pool)
	c.check(os.WriteFile(at+"-cluster.yaml", []byte(pool), 0o644))
	c.check(os.WriteFile(at+"-workload.yaml", []byte("format: inferplan.workload/v1\n"+workload), 0o644))
	said, err := c.try(append([]string{"solve", "--profile", profile, "--cluster", at + "-cluster.yaml", "--workload", at + "-workload.yaml", "-o", at + ".json", "--force"}, more...)...)
	if err != nil {
		return nil, said
	}
	plan, err := formats.ReadPlan(at + ".json")
	c.check(err)
	return plan, said
}

// oneModel is a workload of one model.
func oneModel(name, slo string) string {
	return fmt.Sprintf("models:\n- {model: %s, slo: %s}\n", name, slo)
}

// drive serves a plan, asks the server what ask does, sends it a share of the planned rate, and sets the same arrivals beside each other as
// promised by the profile, simulated with the times that were recorded meanwhile, and measured. It returns the reports by their names; that of
// the server is among them. inputs are flags of plan load.
func (c *run) drive(name, models, load string, ask func(url string), inputs ...string) map[string]*formats.Report {
	at, reports := c.workPath(name), map[string]*formats.Report{"promised": nil, "simulated": nil, "measured": nil, "server": nil}
	if !exists(at + ".json") {
		c.check(errors.New("there is no plan"))
	}
	args := []string{at + ".json", "--models-dir", models, "--http", "127.0.0.1:0", "--grpc", "off", "--metrics", "off", "--record", at + "-service.json", "-o", at + "-server.json"}
	if c.rehearsal {
		args = append(args, "--share-cpus")
	}
	if c.err != nil {
		return nil
	}
	server, err := served.Program{Path: c.plan, Folder: c.work}.Serve(c.ctx, args...)
	if !c.check(err) {
		return nil
	}
	url := "http://" + server.HTTP
	if c.check(served.Answers(c.ctx, url+"/v2/health/ready")) && ask != nil {
		ask(url)
	}
	traffic := []string{"--load", load, "--duration", pick(c, "15s", "6s"), "--warmup", "2s", "--seed", "1", "-q", "--json", "-o"}
	c.call(append(append(append([]string{"load", url, "--plan", at + ".json"}, inputs...), traffic...), at+"-measured.json")...)
	c.check(server.Stop())
	c.call(append(append([]string{"simulate", at + ".json", "--service", at + "-service.json"}, traffic...), at+"-simulated.json")...)
	c.call(append(append([]string{"simulate", at + ".json"}, traffic...), at+"-promised.json")...)
	c.call("report", at+"-promised.json", at+"-simulated.json", at+"-measured.json")
	for kind := range reports {
		if c.err == nil {
			reports[kind], err = formats.ReadReport(at + "-" + kind + ".json")
			c.check(err)
		}
	}
	return reports
}

// infer sends one sample to a server and returns the first output.
func (c *run) infer(url, model, input string, shape []int64, sample []float32) []float32 {
	body, err := json.Marshal(map[string]any{"inputs": []any{map[string]any{"name": input, "datatype": "FP32", "shape": shape, "data": sample}}})
	c.check(err)
	response, err := http.Post(url+"/v2/models/"+model+"/infer", "application/json", bytes.NewReader(body))
	if !c.check(err) {
		return nil
	}
	defer response.Body.Close()
	var answer struct{ Outputs []struct{ Data []float32 } }
	if err := json.NewDecoder(response.Body).Decode(&answer); err != nil || len(answer.Outputs) == 0 {
		c.check(errors.Join(fmt.Errorf("%s has no output", response.Status), err))
		return nil
	}
	return answer.Outputs[0].Data
}
