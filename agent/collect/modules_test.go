package collect

import (
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"
)

const (
	netlinkHeading = "sk               Eth Pid        Groups   Rmem     Wmem     Dump  Locks    Drops    Inode\n"
	netlinkRoute   = "00000000644aa65d 0   0          00000000 0        0        0     2        0        4\n"
	netlinkFilter  = "00000000644aa65d 12  0          00000000 0        0        0     2        0        12\n"
	// Protocol 0 of a process whose id is 12: not nfnetlink.
	netlinkDecoy = "00000000644aa65d 0   12         00000012 12       12       12    12       12       12\n"

	symbolsBuiltIn = "ffffffff81f2bda0 T nfnetlink_subsys_register\nffffffff81f2bda0 T nft_register_expr\n"
	symbolsModule  = "ffffffffc0a2bda0 T nft_register_expr\t[nf_tables]\n"
	symbolsOther   = "0000000000000000 t my_nft_register_expr\n0000000000000000 t nft_register_expr.cold\n"
)

func TestModulesLoaded(t *testing.T) {
	const modules, kallsyms, netlink, version = "proc/modules", "proc/kallsyms", "proc/net/netlink", "proc/version"
	tests := map[string]struct {
		files   map[string]string
		want    bool
		wantErr string
	}{
		"nfnetlink not registered": {
			files: map[string]string{netlink: netlinkHeading + netlinkRoute + netlinkDecoy, modules: "", kallsyms: symbolsBuiltIn},
			want:  false,
		},
		"loaded module": {
			files: map[string]string{netlink: netlinkHeading + netlinkFilter, modules: "", "sys/module/nf_tables/refcnt": "1"},
			want:  true,
		},
		"loaded module, which is linked to nfnetlink": {
			files: map[string]string{"sys/module/nf_tables/refcnt": "1"},
			want:  true,
		},
		"built in": {
			files: map[string]string{netlink: netlinkHeading + netlinkFilter, modules: "", kallsyms: symbolsOther + symbolsBuiltIn},
			want:  true,
		},
		"neither loaded nor built in": {
			files: map[string]string{netlink: netlinkHeading + netlinkFilter, modules: "", kallsyms: symbolsOther},
			want:  false,
		},
		"a module's symbol, the module on its way out": {
			files: map[string]string{netlink: netlinkHeading + netlinkFilter, modules: "", kallsyms: symbolsModule},
			want:  false,
		},
		"kernel without modules: asking is harmless": {
			files: map[string]string{netlink: netlinkHeading + netlinkFilter, version: "Linux"},
			want:  true,
		},
		"kallsyms not there": {
			files:   map[string]string{netlink: netlinkHeading + netlinkFilter, modules: ""},
			wantErr: "looking for nf_tables among what is built into the kernel",
		},
		"kallsyms empty": {
			files:   map[string]string{netlink: netlinkHeading + netlinkFilter, modules: "", kallsyms: ""},
			wantErr: "no symbols",
		},
		"proc shows processes only": {
			files:   map[string]string{netlink: netlinkHeading + netlinkFilter},
			wantErr: "not complete",
		},
		"no list of netlink sockets": {
			files:   map[string]string{modules: "", kallsyms: symbolsBuiltIn},
			wantErr: "looking for nfnetlink",
		},
		"list of netlink sockets without its heading": {
			files:   map[string]string{netlink: "", modules: "", kallsyms: symbolsBuiltIn},
			wantErr: "heading",
		},
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			got, err := newModules(hostOf(t, test.files)).loaded(featureNFTables)
			if got != test.want {
				t.Errorf("loaded = %v, want %v", got, test.want)
			}
			checkError(t, err, test.wantErr)
		})
	}
}

// What kallsyms said is remembered; that it could not be read is not.
func TestModulesReadKallsymsOnce(t *testing.T) {
	host := hostOf(t, map[string]string{"proc/net/netlink": netlinkHeading + netlinkFilter, "proc/modules": ""})
	m := newModules(host)
	if _, err := m.loaded(featureNFTables); err == nil {
		t.Fatal("no error without kallsyms")
	}
	path := filepath.Join(host.Proc, "kallsyms")
	writeFile(t, path, symbolsBuiltIn)
	for range 2 {
		if got, err := m.loaded(featureNFTables); err != nil || !got {
			t.Fatalf("loaded = %v, %v, want true", got, err)
		}
		if got, err := m.loaded(featureIPSet); err != nil || got {
			t.Fatalf("loaded = %v, %v for ip_set, want false", got, err)
		}
		if err := os.RemoveAll(path); err != nil {
			t.Fatal(err)
		}
	}
}

// hostOf makes a host whose roots hold the files: "proc/..." and "sys/...".
func hostOf(t *testing.T, files map[string]string) Host {
	t.Helper()
	root := t.TempDir()
	for name, content := range files {
		writeFile(t, filepath.Join(root, name), content)
	}
	return Host{Proc: filepath.Join(root, "proc"), Sys: filepath.Join(root, "sys"), Root: root, Now: time.Now}
}

func writeFile(t *testing.T, path, content string) {
	t.Helper()
	if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(path, []byte(content), 0o600); err != nil {
		t.Fatal(err)
	}
}

// checkError fails unless err is nil for want "", or has want in its text.
func checkError(t *testing.T, err error, want string) {
	t.Helper()
	switch {
	case want == "" && err != nil:
		t.Errorf("error %v, want none", err)
	case want != "" && err == nil:
		t.Errorf("no error, want one with %q", want)
	case err != nil && !strings.Contains(err.Error(), want):
		t.Errorf("error %v, want one with %q", err, want)
	}
}
