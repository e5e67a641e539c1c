import java.io.File;
import org.apache.hadoop.conf.Configuration;
import org.apache.hadoop.hdfs.MiniDFSCluster;
import org.apache.hadoop.hdfs.server.namenode.EditLogFileOutputStream;

/** A name node and a data node in a folder: `java Hdfs.java FOLDER PORT SYNC_ON_CLOSE`. It says where it is, and ends behind its input. */
public class Hdfs {
  public static void main(String[] arguments) throws Exception {
    Configuration settings = new Configuration();
    settings.set(MiniDFSCluster.HDFS_MINIDFS_BASEDIR, arguments[0]);
    settings.set("dfs.datanode.synconclose", arguments[2]);
    boolean isNew = !new File(arguments[0], "name-0-1").exists();
    MiniDFSCluster.Builder builder = new MiniDFSCluster.Builder(settings);
    // The cluster of Hadoop's tests leaves the syncs of the name node out.
    EditLogFileOutputStream.setShouldSkipFsyncForTesting(false);
    int port = Integer.parseInt(arguments[1]);
    MiniDFSCluster cluster = builder.nameNodePort(port).numDataNodes(1).format(isNew).build();
    cluster.waitActive();
    System.out.println(cluster.getURI());
    System.in.read();
    cluster.shutdown();
  }
}
