package profiler

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"time"
)

// mpsControl is the program that starts and commands CUDA's Multi-Process
// Service; it comes with the driver.
var mpsControl = "nvidia-cuda-mps-control"

// mpsFolders are the folders of the driver's programs when they are not on the PATH.
var mpsFolders = []string{"/usr/local/nvidia/bin", "/usr/bin", "/opt/nvidia/bin"}

// findMPS returns the path of the program that controls CUDA's Multi-Process Service.
func findMPS() (string, error) {
	// Look in PATH first, and then in each folder until one has it.
	path, err := exec.LookPath(mpsControl)
	for _, dir := range mpsFolders {
		if err == nil {
			return path, nil
		}
		path, err = exec.LookPath(filepath.Join(dir, mpsControl))
	}
	return path, err
}

// Results of MPSState.
const (
	MPSAbsent  = "absent"  // its program is not installed
	MPSStopped = "stopped" // its program is installed, but no service runs
	MPSRunning = "running"
)

// MPSState reports whether CUDA's Multi-Process Service (MPS), which divides a GPU between processes, can be used on
// this machine: its state, and a text for the user.
func MPSState() (state, text string) {
	if dir := mpsPipe(); mpsRuns(dir) {
		return MPSRunning, "a service runs at " + dir
	}
	path, err := findMPS()
	if err != nil {
		return MPSAbsent, mpsControl + " is not on this machine"
	}
	return MPSStopped, "no service runs; `plan profile --mps` and gpu-check start one with " + path
}

// mpsPipe returns the folder in which processes look for the service.
func mpsPipe() string {
	if dir := os.Getenv("CUDA_MPS_PIPE_DIRECTORY"); dir != "" {
		return dir
	}
	return "/tmp/nvidia-mps"
}

// mpsRuns reports whether a service has its pipes in a folder.
func mpsRuns(dir string) bool {
	_, err := os.Stat(filepath.Join(dir, "control"))
	return err == nil
}

// MPS is a running Multi-Process Service that StartMPS started.
type MPS struct{ pipe, log string }

// StartMPS starts CUDA's Multi-Process Service, which divides a GPU between processes, with its pipes and logs below
// dir, apart from any other service. Processes find it by the variables of Env, which they need before they open the
// GPU. (CUDA's Multi-Process Service, "Starting and stopping MPS on Linux".)
func StartMPS(dir string) (*MPS, error) {
	m := &MPS{pipe: filepath.Join(dir, "pipe"), log: filepath.Join(dir, "log")}
	path, err := findMPS()
	if err != nil {
		return nil, fmt.Errorf("start MPS: %s is not on this machine: it comes with the driver's packages", mpsControl)
	}
	for _, d := range []string{m.pipe, m.log} {
		if err := os.MkdirAll(d, 0o700); err != nil {
			return nil, fmt.Errorf("start MPS: %w", err)
		}
	}
	if out, err := m.runControl(path, "-d", ""); err != nil {
		return nil, fmt.Errorf("start MPS: %w: %s", err, out)
	}
	// The daemon answers as soon as it runs.
	if out, err := m.runControl(path, "", "get_server_list\n"); err != nil {
		return nil, errors.Join(fmt.Errorf("start MPS: it does not answer: %w: %s", err, out), m.Stop())
	}
	return m, nil
}

// runControl runs the control program of CUDA's Multi-Process Service, which lies at path, and returns its output.
// The flag -d starts the service. Without a flag, input has commands for the running service.
func (m *MPS) runControl(path, flag, input string) (string, error) {
	ctx, cancel := context.WithTimeout(context.Background(), 20*time.Second)
	defer cancel()
	var args []string
	if flag != "" {
		args = append(args, flag)
	}
	cmd := exec.CommandContext(ctx, path, args...)
	// The daemon finds the server program by its name.
	cmd.Env = append(os.Environ(), m.Env()...)
	cmd.Env = append(cmd.Env, "PATH="+os.Getenv("PATH")+string(filepath.ListSeparator)+filepath.Dir(path))
	cmd.Stdin = strings.NewReader(input)
	// Use a file: the daemon would keep a pipe open, and Run waits until it is closed.
	out, err := os.CreateTemp(m.log, "control-*")
	if err != nil {
		return "", err
	}
	defer os.Remove(out.Name())
	defer out.Close()
	cmd.Stdout, cmd.Stderr = out, out
	err = cmd.Run()
	text, _ := os.ReadFile(out.Name())
	return string(bytes.TrimSpace(text)), err
}

// Env returns the variables by which processes find the service.
func (m *MPS) Env() []string {
	return []string{"CUDA_MPS_PIPE_DIRECTORY=" + m.pipe, "CUDA_MPS_LOG_DIRECTORY=" + m.log}
}

// Stop ends the service. Processes that use it must have ended before.
func (m *MPS) Stop() error {
	path, err := findMPS()
	if err != nil {
		return fmt.Errorf("stop MPS: %w", err)
	}
	if out, err := m.runControl(path, "", "quit\n"); err != nil {
		return fmt.Errorf("stop MPS: %w: %s", err, out)
	}
	return nil
}
