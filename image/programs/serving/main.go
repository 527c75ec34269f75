// A registry on a folder: the nodes of a cluster pull from its public address, and its private one fills it.
//
// Contents are known by their digests alone: it has no tags, and the name of a repository says nothing.
// https://github.com/opencontainers/distribution-spec/blob/v1.1.0/spec.md has all requests.
package main

import (
	"cmp"
	"crypto/sha256"
	"crypto/subtle"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"net"
	"net/http"
	"os"
	"os/signal"
	"path/filepath"
	"regexp"
	"runtime/debug"
	"sync"
	"syscall"
	"time"
)

const (
	// In bytes: a manifest, which registries refuse above 4 MiB; a request's head; and the heap, beyond which
	// Go collects all the time.
	largestManifest, largestHead, heap = 4 << 20, 16 << 10, 64 << 20
	// An address has so many connections at once; others wait until one of them ends.
	mostConnections = 256
	// A head comes within so long, and so do `step` bytes of a content, either way.
	headPatience, patience = 10 * time.Second, time.Minute
	step                   = 1 << 20
	// A content that is not whole yet has such a name.
	drafts          = ".draft-*"
	defaultManifest = "application/vnd.oci.image.manifest.v1+json"
	component       = `[a-z0-9]+(?:(?:\.|_|__|-+)[a-z0-9]+)*`
)

var (
	repository = component + `(?:/` + component + `)*`
	place      = regexp.MustCompile(`^/v2/(` + repository + `)/(blobs/uploads|blobs|manifests)/([\w.:+-]*)$`)
	digest     = regexp.MustCompile(`^sha256:([0-9a-f]{64})$`)
	// It goes into a header.
	mediaType = regexp.MustCompile(`^application/[a-z0-9.+-]{1,100}$`)
	errOther  = errors.New("the content has another digest")
)

type registry struct {
	folder    string
	isPrivate bool
	// Who asks the private address has it.
	password string
	// One manifest at a time is held in memory.
	manifests *sync.Mutex
}

func (s registry) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	if _, password, _ := r.BasicAuth(); s.isPrivate && subtle.ConstantTimeCompare([]byte(password), []byte(s.password)) == 0 {
		w.Header().Set("WWW-Authenticate", `Basic realm="images"`)
		w.Header().Set("Connection", "close")
		refuse(w, http.StatusUnauthorized, "UNAUTHORIZED", "this takes the password")
		return
	}
	isReading := r.Method == http.MethodGet || r.Method == http.MethodHead
	if !isReading && !s.isPrivate {
		notAllowed(w, "GET, HEAD")
		return
	}
	if isReading && r.URL.Path == "/v2/" {
		w.Header().Set("Content-Type", "application/json")
		io.WriteString(w, "{}")
		return
	}
	parts := place.FindStringSubmatch(r.URL.Path)
	if parts == nil {
		refuse(w, http.StatusNotFound, "NAME_UNKNOWN", "nothing is there")
		return
	}
	name, kind, reference := parts[1], parts[2], parts[3]
	switch {
	case isReading && kind == "blobs":
		s.giveBlob(w, r, hexOf(reference))
	case isReading && kind == "manifests":
		s.giveManifest(w, r, hexOf(reference))
	case r.Method == http.MethodPut && kind == "manifests":
		s.take(w, r, name, kind, hexOf(reference), largestManifest)
	case r.Method == http.MethodPut && kind == "blobs/uploads" && reference != "":
		s.take(w, r, name, "blobs", hexOf(r.URL.Query().Get("digest")), 1<<62)
	case r.Method == http.MethodPost && kind == "blobs/uploads" && reference == "":
		if mounted := hexOf(r.URL.Query().Get("mount")); mounted != "" {
			if _, err := os.Stat(s.path(mounted)); err == nil {
				created(w, name, "blobs", mounted)
				return
			}
		}
		// Nothing is kept of an upload before its content comes, so that all have one place.
		w.Header().Set("Location", "/v2/"+name+"/blobs/uploads/new")
		w.WriteHeader(http.StatusAccepted)
	case r.Method == http.MethodDelete && kind == "blobs/uploads" && reference != "":
		w.WriteHeader(http.StatusNoContent)
	default:
		notAllowed(w, "GET, HEAD, POST, PUT, DELETE")
	}
}

func (s registry) giveBlob(w http.ResponseWriter, r *http.Request, hex string) {
	file, _ := s.open(hex)
	if file == nil {
		refuse(w, http.StatusNotFound, "BLOB_UNKNOWN", "no such content is here")
		return
	}
	defer file.Close()
	give(w, r, hex, "application/octet-stream", file)
}

func (s registry) giveManifest(w http.ResponseWriter, r *http.Request, hex string) {
	file, size := s.open(hex)
	if file != nil {
		defer file.Close()
	}
	if file == nil || size > largestManifest {
		refuse(w, http.StatusNotFound, "MANIFEST_UNKNOWN", "no such manifest is here")
		return
	}
	give(w, r, hex, s.typeOf(file), file)
}

// Returns what a manifest says that it is.
func (s registry) typeOf(file *os.File) string {
	s.manifests.Lock()
	defer s.manifests.Unlock()
	var document struct {
		MediaType string `json:"mediaType"`
	}
	if json.NewDecoder(file).Decode(&document) != nil || !mediaType.MatchString(document.MediaType) {
		return defaultManifest
	}
	return document.MediaType
}

func give(w http.ResponseWriter, r *http.Request, hex, kind string, file *os.File) {
	w.Header().Set("Content-Type", kind)
	w.Header().Set("Docker-Content-Digest", "sha256:"+hex)
	w.Header().Set("Etag", `"sha256:`+hex+`"`)
	http.ServeContent(w, r, "", time.Time{}, file)
}

// Takes the content of that digest from the body of a request, with at most so many bytes.
func (s registry) take(w http.ResponseWriter, r *http.Request, name, kind, hex string, most int64) {
	body := patientBody{http.NewResponseController(w), r.Body}
	// One who still sends does not read an answer.
	defer io.Copy(io.Discard, body)
	if hex == "" {
		refuse(w, http.StatusBadRequest, "DIGEST_INVALID", "it is named by no sha256 digest")
		return
	}
	err := s.keep(http.MaxBytesReader(w, io.NopCloser(body), most), hex)
	var tooLarge *http.MaxBytesError
	var ofFile *fs.PathError
	var ofLink *os.LinkError
	switch {
	case err == nil:
		created(w, name, kind, hex)
	case errors.Is(err, syscall.ENOSPC) || errors.Is(err, syscall.EDQUOT):
		refuse(w, http.StatusInsufficientStorage, "UNKNOWN", "no space left")
	case errors.Is(err, errOther):
		refuse(w, http.StatusBadRequest, "DIGEST_INVALID", err.Error())
	case errors.As(err, &tooLarge):
		refuse(w, http.StatusRequestEntityTooLarge, "SIZE_INVALID", "it is too large")
	case errors.As(err, &ofFile) || errors.As(err, &ofLink):
		refuse(w, http.StatusInternalServerError, "UNKNOWN", err.Error())
	default:
		refuse(w, http.StatusBadRequest, "BLOB_UPLOAD_INVALID", "the content breaks off")
	}
}

// Writes a content, which is there afterwards if it is the one of that digest.
func (s registry) keep(content io.Reader, digest string) error {
	draft, err := os.CreateTemp(s.folder, drafts)
	if err != nil {
		return err
	}
	// A whole content has another name by then.
	defer os.Remove(draft.Name())
	defer draft.Close()
	hash := sha256.New()
	if _, err = io.Copy(io.MultiWriter(draft, hash), content); err != nil {
		return err
	}
	if hex.EncodeToString(hash.Sum(nil)) != digest {
		return errOther
	}
	// A node that loses its power has all of a content afterwards, or nothing.
	if err = draft.Sync(); err != nil {
		return err
	}
	if err = draft.Close(); err != nil {
		return err
	}
	return os.Rename(draft.Name(), s.path(digest))
}

// Returns the content of that digest, and its size; nil where it is not there.
func (s registry) open(hex string) (*os.File, int64) {
	if hex == "" {
		return nil, 0
	}
	file, err := os.Open(s.path(hex))
	if err != nil {
		return nil, 0
	}
	status, err := file.Stat()
	if err != nil || !status.Mode().IsRegular() {
		file.Close()
		return nil, 0
	}
	return file, status.Size()
}

func (s registry) path(hex string) string {
	return filepath.Join(s.folder, "sha256-"+hex)
}

// Returns the 64 digits of a digest, or nothing where it is none.
func hexOf(reference string) string {
	if parts := digest.FindStringSubmatch(reference); parts != nil {
		return parts[1]
	}
	return ""
}

func created(w http.ResponseWriter, name, kind, hex string) {
	w.Header().Set("Location", "/v2/"+name+"/"+kind+"/sha256:"+hex)
	w.Header().Set("Docker-Content-Digest", "sha256:"+hex)
	w.WriteHeader(http.StatusCreated)
}

func notAllowed(w http.ResponseWriter, methods string) {
	w.Header().Set("Allow", methods)
	w.Header().Set("Connection", "close")
	refuse(w, http.StatusMethodNotAllowed, "UNSUPPORTED", "this can't be done here")
}

func refuse(w http.ResponseWriter, status int, code, message string) {
	w.Header().Set("Content-Type", "application/json")
	w.WriteHeader(status)
	first := map[string]string{"code": code, "message": message}
	json.NewEncoder(w).Encode(map[string]any{"errors": []any{first}})
}

// Has a body come in time, piece by piece.
type patientBody struct {
	control *http.ResponseController
	io.Reader
}

func (b patientBody) Read(piece []byte) (int, error) {
	b.control.SetReadDeadline(time.Now().Add(patience))
	return b.Reader.Read(piece)
}

// Accepts so many connections at once.
type listener struct {
	*net.TCPListener
	slots chan struct{}
}

func (l listener) Accept() (net.Conn, error) {
	l.slots <- struct{}{}
	accepted, err := l.AcceptTCP()
	if err != nil {
		<-l.slots
		return nil, err
	}
	return connection{accepted, sync.OnceFunc(func() { <-l.slots })}, nil
}

// Ends where the other side does not read.
type connection struct {
	*net.TCPConn
	leave func()
}

func (c connection) Write(piece []byte) (int, error) {
	c.SetWriteDeadline(time.Now().Add(patience))
	return c.TCPConn.Write(piece)
}

// Sends a content step by step, each of them inside the kernel: *net.TCPConn does so with a limited file.
func (c connection) ReadFrom(source io.Reader) (sum int64, err error) {
	limited, ok := source.(*io.LimitedReader)
	if !ok {
		return io.Copy(struct{ io.Writer }{c}, source)
	}
	for err == nil && limited.N > 0 {
		c.SetWriteDeadline(time.Now().Add(patience))
		next := io.LimitedReader{R: limited.R, N: min(limited.N, step)}
		var sent int64
		if sent, err = c.TCPConn.ReadFrom(&next); sent == 0 {
			break
		}
		limited.N -= sent
		sum += sent
	}
	return sum, err
}

func (c connection) Close() error {
	defer c.leave()
	return c.TCPConn.Close()
}

func serve(address string, handler registry, ended chan<- error) {
	opened, err := net.Listen("tcp", address)
	if err != nil {
		ended <- err
		return
	}
	server := http.Server{
		Handler:           handler,
		ReadHeaderTimeout: headPatience,
		IdleTimeout:       patience,
		MaxHeaderBytes:    largestHead,
		// It would answer `OPTIONS *` itself.
		DisableGeneralOptionsHandler: true,
	}
	if !handler.isPrivate {
		// What comes there is a head.
		server.ReadTimeout = headPatience
	}
	ended <- server.Serve(listener{opened.(*net.TCPListener), make(chan struct{}, mostConnections)})
}

func run() error {
	password := os.Getenv("RAYSIDE_PASSWORD")
	if password == "" {
		return errors.New("RAYSIDE_PASSWORD is not set, so that anybody could fill it")
	}
	folder := cmp.Or(os.Getenv("RAYSIDE_FOLDER"), "/contents")
	draft, err := os.CreateTemp(folder, drafts)
	if err != nil {
		return err
	}
	draft.Close()
	// Those of a process that was killed go, too.
	left, err := filepath.Glob(filepath.Join(folder, drafts))
	for _, path := range left {
		err = cmp.Or(err, os.Remove(path))
	}
	if err != nil {
		return err
	}
	debug.SetMemoryLimit(heap)
	ended := make(chan error, 2)
	manifests := &sync.Mutex{}
	public := cmp.Or(os.Getenv("RAYSIDE_PUBLIC"), ":5000")
	private := cmp.Or(os.Getenv("RAYSIDE_PRIVATE"), "127.0.0.1:5001")
	go serve(public, registry{folder, false, "", manifests}, ended)
	go serve(private, registry{folder, true, password, manifests}, ended)
	signals := make(chan os.Signal, 1)
	signal.Notify(signals, syscall.SIGINT, syscall.SIGTERM)
	select {
	case err = <-ended:
		return err
	case <-signals:
		return nil
	}
}

func main() {
	if err := run(); err != nil {
		fmt.Fprintln(os.Stderr, "serving:", err)
		os.Exit(1)
	}
}
