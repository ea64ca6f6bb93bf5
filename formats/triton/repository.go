package triton

import (
	"cmp"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"

	"inferplan/formats/document"
	"inferplan/formats/triton/configpb"
)

// Model is a model of a repository.
type Model struct {
	File   string // of its configuration
	Config *configpb.ModelConfig
}

// Repository is the models of one server.
type Repository struct {
	Host   string // the folder's name, if several repositories stand beside each other; else ""
	Models []Model
}

// ReadRepositories reads the repository in dir, or the repositories in the folders of dir, one for each host, as an
// export writes them. Models and hosts are sorted by name. Folders without a model are left out. A repository without
// any model is a *document.Error.
func ReadRepositories(dir string) ([]Repository, error) {
	folders, err := subfolders(dir)
	if err != nil {
		return nil, err
	}
	single, err := readRepository(dir, folders)
	if err != nil {
		return nil, err
	}
	if len(single) > 0 {
		return []Repository{{Models: single}}, nil
	}
	var list []Repository
	for _, host := range folders {
		path := filepath.Join(dir, host)
		folders, err := subfolders(path)
		if err != nil {
			return nil, err
		}
		models, err := readRepository(path, folders)
		if err != nil {
			return nil, err
		}
		if len(models) > 0 {
			list = append(list, Repository{host, models})
		}
	}
	if len(list) == 0 {
		return nil, &document.Error{File: dir, Found: "no folder with " + ConfigName, Expected: "a model repository of Triton, or a folder of them",
			Hint: "a server that completes configurations itself returns them at v2/models/NAME/config; write them beside the models"}
	}
	return list, nil
}

// subfolders returns the names of the folders in dir, sorted.
func subfolders(dir string) ([]string, error) {
	entries, err := os.ReadDir(dir)
	if err != nil {
		return nil, err
	}
	var names []string
	for _, e := range entries {
		// A folder may be a link, as in mounted volumes.
		if info, err := os.Stat(filepath.Join(dir, e.Name())); err == nil && info.IsDir() {
			names = append(names, e.Name())
		}
	}
	return names, nil
}

// maxConfig is the most bytes of a configuration that are read.
const maxConfig = 1 << 20

// readRepository reads the configurations in the folders of a repository. A folder without one is no model.
func readRepository(dir string, folders []string) ([]Model, error) {
	var models []Model
	for _, name := range folders {
		file := filepath.Join(dir, name, ConfigName)
		info, err := os.Stat(file)
		switch {
		case errors.Is(err, fs.ErrNotExist):
			continue
		case err != nil:
			return nil, err
		case !info.Mode().IsRegular() || info.Size() > maxConfig:
			return nil, &document.Error{File: file, Found: fmt.Sprintf("%d bytes, %s", info.Size(), info.Mode()), Expected: fmt.Sprintf("a file of at most %d bytes", maxConfig)}
		}
		text, err := os.ReadFile(file)
		if err != nil {
			return nil, err
		}
		config, err := ParseConfig(file, text)
		if err != nil {
			return nil, err
		}
		config.Name = cmp.Or(config.Name, name)
		if config.Name != name {
			return nil, &document.Error{File: file, Path: "name", Found: document.Quote(config.Name), Expected: "the name of its folder, " + document.Quote(name)}
		}
		models = append(models, Model{file, config})
	}
	return models, nil
}
