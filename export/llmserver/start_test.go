package llmserver_test

import (
	"bytes"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"pgregory.net/rapid"

	"inferplan/export/llmserver"
	"inferplan/formats"
)

// startNode runs the start script of the node with the sleeping model, with programs that only note their names and
// then run body. The program that asks waits for the server to have started. It returns the script's process, and the notes so far.
func startNode(t *testing.T, body string) (script *exec.Cmd, notes func() string) {
	t.Helper()
	files, err := exported(t, engines[0].target(), "testdata/plan.json", engines[0].arguments...)
	if err != nil {
		t.Fatal(err)
	}
	dir := t.TempDir()
	log := filepath.Join(dir, "notes")
	for name, text := range map[string]string{
		"start.sh": files["nodes/a100-0/start.sh"],
		"vllm":     "#!/bin/sh\necho \"start $4 on $CUDA_VISIBLE_DEVICES\" >> " + log + "\n" + body,
		"curl":     "#!/bin/sh\nuntil grep -q code-13b " + log + " 2>/dev/null; do sleep .01; done\nfor last; do :; done\necho \"${last#http://127.0.0.1}\" >> " + log + "\n",
	} {
		if err := os.WriteFile(filepath.Join(dir, name), []byte(text), 0o755); err != nil {
			t.Fatal(err)
		}
	}
	script = exec.Command(filepath.Join(dir, "start.sh"))
	script.Env = append(os.Environ(), "PATH="+dir+":"+os.Getenv("PATH"))
	script.SysProcAttr = &syscall.SysProcAttr{Setpgid: true}
	if err := script.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = syscall.Kill(-script.Process.Pid, syscall.SIGKILL) })
	return script, func() string {
		data, _ := os.ReadFile(log)
		return string(data)
	}
}

// The start script puts a model to sleep before the next one of its instance takes the memory, and ends its servers
// when it is ended.
func TestStartScript(t *testing.T) {
	script, notes := startNode(t, "exec sleep 60\n")
	const expected = "start chat-7b on 0\nstart code-13b on 1\n:8102/health\n:8102/sleep?level=1\nstart chat-7b on 1\n"
	for deadline := time.Now().Add(10 * time.Second); strings.Count(notes(), "\n") < 5 && time.Now().Before(deadline); {
		time.Sleep(10 * time.Millisecond)
	}
	// The first server starts beside the others, so that its line may stand anywhere.
	lines := strings.SplitAfter(notes(), "\n")
	rest := strings.Replace(strings.Join(lines, ""), "start chat-7b on 0\n", "", 1)
	if got := "start chat-7b on 0\n" + rest; got != expected {
		t.Errorf("notes %q, expected %q", got, expected)
	}
	if err := script.Process.Signal(syscall.SIGTERM); err != nil {
		t.Fatal(err)
	}
	if err := script.Wait(); script.ProcessState.ExitCode() != 130 {
		t.Errorf("the script ended with %v", err)
	}
	// Nothing of its group is left but what has ended.
	for deadline := time.Now().Add(5 * time.Second); syscall.Kill(-script.Process.Pid, 0) == nil; {
		if time.Now().After(deadline) {
			t.Fatal("servers are left behind")
		}
		time.Sleep(10 * time.Millisecond)
	}
}

// It ends with the first server that ends.
func TestStartScriptEndsWithItsServers(t *testing.T) {
	script, _ := startNode(t, "exit 1\n")
	if err := script.Wait(); script.ProcessState.ExitCode() != 1 {
		t.Errorf("the script ended with %v", err)
	}
}

// A real llama-server starts by the script that was written for it, and lists the plan's model.
func TestRealLlamaServer(t *testing.T) {
	home, err := filepath.Abs("../../third_party/llama")
	if err != nil {
		t.Fatal(err)
	}
	model := filepath.Join(home, "models", "tiny-a.gguf")
	for _, file := range []string{model, filepath.Join(home, "llama-server")} {
		if _, err := os.Stat(file); err != nil {
			t.Skipf("no llama-server here (make llama): %v", err)
		}
	}
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	_, port, _ := net.SplitHostPort(listener.Addr().String())
	listener.Close()
	files, err := exported(t, engines[2].target(), "testdata/cpu.json", "--model", "tiny="+model, "--port", port)
	if err != nil {
		t.Fatal(err)
	}
	path := filepath.Join(t.TempDir(), "start.sh")
	if err := os.WriteFile(path, []byte(files["nodes/cpu-2-0/start.sh"]), 0o755); err != nil {
		t.Fatal(err)
	}
	var log bytes.Buffer
	script := exec.Command(path)
	script.Env, script.Stdout, script.Stderr = append(os.Environ(), "PATH="+home+":"+os.Getenv("PATH")), &log, &log
	if err := script.Start(); err != nil {
		t.Fatal(err)
	}
	defer func() {
		_ = script.Process.Signal(syscall.SIGTERM)
		_ = script.Wait()
		if t.Failed() {
			t.Log(log.String())
		}
	}()
	for deadline := time.Now().Add(30 * time.Second); ; time.Sleep(50 * time.Millisecond) {
		answer, err := http.Get("http://127.0.0.1:" + port + "/v1/models")
		if err == nil {
			body, _ := io.ReadAll(answer.Body)
			answer.Body.Close()
			if answer.StatusCode == http.StatusOK {
				if !strings.Contains(string(body), `"id":"tiny"`) {
					t.Errorf("models %s", body)
				}
				return
			}
		}
		if time.Now().After(deadline) {
			t.Fatalf("the server does not answer: %v", err)
		}
	}
}

// In a layout of a drawn plan every server has a port of its own, instances of a node share no device, and every
// model that an instance may run is at one of its servers.
func TestLayoutsOfDrawnPlans(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		perNode := rapid.IntRange(1, 8).Draw(t, "per node")
		models := rapid.IntRange(1, 4).Draw(t, "models")
		queue := &formats.QueuePlan{}
		options := &llmserver.Options{Port: 8100}
		for m := range models {
			queue.Models = append(queue.Models, formats.LLMProfile{Model: fmt.Sprint("m", m)})
			if m > 0 && rapid.Bool().Draw(t, "adapter") {
				options.Adapters = append(options.Adapters, fmt.Sprintf("m%d=m0,/adapters/m%d", m, m))
				continue
			}
			options.Sources = append(options.Sources, fmt.Sprintf("m%d=/models/m%d", m, m))
		}
		count := 0
		for range rapid.IntRange(1, 6).Draw(t, "instances") {
			in := formats.QueueInstance{Device: "L4", TensorParallel: rapid.IntRange(1, perNode).Draw(t, "devices"), Model: "m0", TokenBudget: 1}
			if count%perNode+in.TensorParallel > perNode {
				count += perNode - count%perNode
			}
			in.FirstDevice = count
			count += in.TensorParallel
			for m := range models {
				if m == 0 || rapid.Bool().Draw(t, "has it") {
					in.Models, in.Sequences = append(in.Models, fmt.Sprint("m", m)), append(in.Sequences, m+1)
				}
			}
			queue.Instances = append(queue.Instances, in)
		}
		plan := &formats.Plan{Kind: formats.PlanQueue, Section: queue, Pools: []formats.Pool{{Device: "L4", Count: count, PerNode: perNode}}}
		layout, err := llmserver.NewLayout(plan, options)
		if err != nil {
			t.Fatal(err)
		}
		ports, devices := map[int]bool{}, map[string]bool{}
		for i := range layout.Instances {
			in := &layout.Instances[i]
			if in.InitialModel() == nil || in.InitialModel().Name != "m0" {
				t.Fatalf("instance %d begins with %v", i, in.InitialModel())
			}
			served := map[string]int{}
			for _, m := range in.Bases {
				if ports[m.Port] {
					t.Errorf("port %d is there twice", m.Port)
				}
				ports[m.Port] = true
				served[m.Name] = m.Sequences
				for _, a := range m.Adapters {
					served[a.Name] = m.Sequences
				}
			}
			for k, model := range in.Models {
				if served[model] < in.Sequences[k] {
					t.Errorf("instance %d runs %d sequences of %s, expected %d", i, served[model], model, in.Sequences[k])
				}
			}
			for _, d := range in.Devices {
				key := fmt.Sprint(in.Node.Name, d)
				if devices[key] || d >= perNode {
					t.Errorf("device %d of %s is there twice, or beyond %d", d, in.Node.Name, perNode)
				}
				devices[key] = true
			}
		}
	})
}
