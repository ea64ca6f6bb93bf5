package served

import (
	"context"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"syscall"

	"inferplan/testkit/natstest"
)

// Llama starts a llama-server that has the named models of folder and room for one of them at a
// time, with so many slots and further flags. It makes a folder of the models in scratch. stop ends it
// and its models.
func Llama(ctx context.Context, folder, scratch string, slots int, flags []string, names ...string) (url string, stop func(), err error) {
	models := filepath.Join(scratch, fmt.Sprint("models", slots))
	if err := os.MkdirAll(models, 0o755); err != nil {
		return "", nil, err
	}
	for _, n := range names {
		if err := os.Symlink(filepath.Join(folder, "models", n+".gguf"), filepath.Join(models, n+".gguf")); err != nil {
			return "", nil, err
		}
	}
	port, err := natstest.FreePort()
	if err != nil {
		return "", nil, err
	}
	args := []string{"--host", "127.0.0.1", "--port", fmt.Sprint(port), "--models-dir", models, "--models-max", "1", "-t", "1", "-np", fmt.Sprint(slots), "-fa", "off", "--metrics"}
	cmd := exec.Command(filepath.Join(folder, "llama-server"), append(args, flags...)...)
	cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true}
	if err := cmd.Start(); err != nil {
		return "", nil, err
	}
	stop = func() {
		_ = syscall.Kill(-cmd.Process.Pid, syscall.SIGKILL) // and its models
		_ = cmd.Wait()
	}
	url = fmt.Sprint("http://127.0.0.1:", port)
	if err := Answers(ctx, url+"/health"); err != nil {
		stop()
		return "", nil, err
	}
	return url, stop, nil
}
