// Plays the scenario of tests/clients with the AWS SDK for JavaScript v3, and prints what it saw as JSON.
// sqs-clients.md
import { SQS } from "@aws-sdk/client-sqs";

const sqs = new SQS({
  endpoint: process.env.LEDGER_URL,
  region: "us-east-1",
  credentials: { accessKeyId: process.env.LEDGER_ACCESS_KEY_ID, secretAccessKey: process.env.LEDGER_SECRET_ACCESS_KEY },
});
// end
import { paginateListQueues } from "@aws-sdk/client-sqs";

const PREFIX = "javascript-";
const saw = { errors: {} };

async function failing(label, client, action, given) {
  try {
    await client[action](given);
  } catch (error) {
    saw.errors[label] = { type: error.constructor.name, code: error.Code ?? error.name };
  }
}

async function made(name, Attributes) {
  return (await sqs.createQueue({ QueueName: PREFIX + name, Attributes })).QueueUrl;
}

async function attribute(QueueUrl, name) {
  return (await sqs.getQueueAttributes({ QueueUrl, AttributeNames: [name] })).Attributes[name];
}

function outcome(answer) {
  return {
    successful: (answer.Successful ?? []).map((one) => one.Id),
    failed: (answer.Failed ?? []).map((one) => ({ id: one.Id, code: one.Code, sender_fault: one.SenderFault })),
  };
}

async function oneMessage(QueueUrl) {
  const sent = await sqs.sendMessage({
    QueueUrl,
    MessageBody: "a body, ü and 漢",
    MessageAttributes: {
      text: { DataType: "String", StringValue: "väl" },
      count: { DataType: "Number.int", StringValue: "42" },
      bytes: { DataType: "Binary", BinaryValue: new Uint8Array([0, 1, 254, 255]) },
    },
    MessageSystemAttributes: { AWSTraceHeader: { DataType: "String", StringValue: "Root=1-5759e988-bd862e3fe1be46a994272793" } },
  });
  saw.sent = {
    message_id: sent.MessageId,
    md5_of_body: sent.MD5OfMessageBody,
    md5_of_attributes: sent.MD5OfMessageAttributes,
    md5_of_system_attributes: sent.MD5OfMessageSystemAttributes,
  };
  const all = { QueueUrl, MessageSystemAttributeNames: ["All"], MessageAttributeNames: ["All"] };
  const first = (await sqs.receiveMessage(all)).Messages[0];
  saw.received = {
    message_id: first.MessageId,
    body: first.Body,
    md5_of_body: first.MD5OfBody,
    md5_of_attributes: first.MD5OfMessageAttributes,
    system: first.Attributes,
    text: first.MessageAttributes.text.StringValue,
    count: [first.MessageAttributes.count.DataType, first.MessageAttributes.count.StringValue],
    bytes: [...first.MessageAttributes.bytes.BinaryValue],
  };
  await sqs.changeMessageVisibility({ QueueUrl, ReceiptHandle: first.ReceiptHandle, VisibilityTimeout: 2 });
  const again = (await sqs.receiveMessage({ ...all, WaitTimeSeconds: 20 })).Messages[0];
  saw.long_poll = {
    message_id: again.MessageId,
    receive_count: again.Attributes.ApproximateReceiveCount,
    has_new_handle: again.ReceiptHandle !== first.ReceiptHandle,
  };
  await sqs.changeMessageVisibility({ QueueUrl, ReceiptHandle: again.ReceiptHandle, VisibilityTimeout: 0 });
  const released = { QueueUrl, ReceiptHandle: again.ReceiptHandle, VisibilityTimeout: 5 };
  await failing("not_in_flight", sqs, "changeMessageVisibility", released);
  const last = (await sqs.receiveMessage({ QueueUrl })).Messages[0];
  await sqs.deleteMessage({ QueueUrl, ReceiptHandle: last.ReceiptHandle });
  saw.after_delete = [
    await attribute(QueueUrl, "ApproximateNumberOfMessages"),
    await attribute(QueueUrl, "ApproximateNumberOfMessagesNotVisible"),
  ];
}

async function batches(QueueUrl) {
  const Entries = [
    { Id: "one", MessageBody: "1" },
    { Id: "late", MessageBody: "2", DelaySeconds: 901 },
    { Id: "three", MessageBody: "3" },
  ];
  saw.send_batch = outcome(await sqs.sendMessageBatch({ QueueUrl, Entries }));
  const messages = (await sqs.receiveMessage({ QueueUrl, MaxNumberOfMessages: 10 })).Messages;
  saw.batch_bodies = messages.map((message) => message.Body).sort();
  const handles = [...messages.map((message) => message.ReceiptHandle), "none"];
  const entries = handles.map((ReceiptHandle, number) => ({ Id: `${number}`, ReceiptHandle }));
  const changes = entries.map((entry) => ({ ...entry, VisibilityTimeout: 60 }));
  saw.change_batch = outcome(await sqs.changeMessageVisibilityBatch({ QueueUrl, Entries: changes }));
  saw.delete_batch = outcome(await sqs.deleteMessageBatch({ QueueUrl, Entries: entries }));
}

async function errors(QueueUrl) {
  const one = { Id: "one", MessageBody: "1" };
  const eleven = Array.from({ length: 11 }, (_, number) => ({ ...one, Id: `${number}` }));
  await failing("no_queue", sqs, "getQueueUrl", { QueueName: "nowhere" });
  await failing("queue_exists", sqs, "createQueue", { QueueName: `${PREFIX}standard`, Attributes: { DelaySeconds: "7" } });
  await failing("no_handle", sqs, "deleteMessage", { QueueUrl, ReceiptHandle: "none" });
  await failing("empty_batch", sqs, "sendMessageBatch", { QueueUrl, Entries: [] });
  await failing("same_ids", sqs, "sendMessageBatch", { QueueUrl, Entries: [one, one] });
  await failing("too_many", sqs, "sendMessageBatch", { QueueUrl, Entries: eleven });
  await failing("no_content", sqs, "sendMessage", { QueueUrl, MessageBody: "\u0001" });
  await failing("no_such_attribute", sqs, "setQueueAttributes", { QueueUrl, Attributes: { Nothing: "1" } });
  await sqs.purgeQueue({ QueueUrl });
  await failing("purged", sqs, "purgeQueue", { QueueUrl });
  const credentials = { accessKeyId: process.env.LEDGER_ACCESS_KEY_ID, secretAccessKey: "another secret" };
  const stranger = new SQS({ endpoint: process.env.LEDGER_URL, region: "us-east-1", credentials });
  await failing("wrong_secret", stranger, "listQueues", {});
}

async function fifo() {
  const QueueUrl = await made("of-order.fifo", { FifoQueue: "true", ContentBasedDeduplication: "true" });
  const send = (MessageGroupId, MessageBody) => sqs.sendMessage({ QueueUrl, MessageBody, MessageGroupId });
  const sent = [await send("a", "a1"), await send("a", "a2"), await send("b", "b1"), await send("a", "a1")];
  await failing("no_group", sqs, "sendMessage", { QueueUrl, MessageBody: "of none" });
  const asked = { QueueUrl, MaxNumberOfMessages: 10, MessageSystemAttributeNames: ["All"] };
  const { Messages } = await sqs.receiveMessage(asked);
  saw.fifo = {
    sequence_numbers: sent.map((one) => one.SequenceNumber),
    message_ids: sent.map((one) => one.MessageId),
    received: Messages.map((one) => [one.Attributes.MessageGroupId, one.Body, one.Attributes.SequenceNumber]),
    while_in_flight: ((await sqs.receiveMessage(asked)).Messages ?? []).length,
  };
}

async function deadLetters() {
  const dead = await made("dead");
  const deadLetterTargetArn = await attribute(dead, "QueueArn");
  const source = await made("source", { RedrivePolicy: JSON.stringify({ deadLetterTargetArn, maxReceiveCount: "1" }) });
  await sqs.sendMessage({ QueueUrl: source, MessageBody: "poison" });
  const { ReceiptHandle } = (await sqs.receiveMessage({ QueueUrl: source })).Messages[0];
  await sqs.changeMessageVisibility({ QueueUrl: source, ReceiptHandle, VisibilityTimeout: 0 });
  const third = (await sqs.receiveMessage({ QueueUrl: source })).Messages ?? [];
  const asked = { QueueUrl: dead, MessageSystemAttributeNames: ["All"], VisibilityTimeout: 0, WaitTimeSeconds: 20 };
  const message = (await sqs.receiveMessage(asked)).Messages[0];
  const sources = (await sqs.listDeadLetterSourceQueues({ QueueUrl: dead })).queueUrls;
  const { TaskHandle } = await sqs.startMessageMoveTask({ SourceArn: deadLetterTargetArn });
  const back = (await sqs.receiveMessage({ QueueUrl: source, WaitTimeSeconds: 20 })).Messages[0];
  saw.dead_letters = {
    received_once_more: third.length,
    body: message.Body,
    source_arn: message.Attributes.DeadLetterQueueSourceArn,
    expected_arn: await attribute(source, "QueueArn"),
    sources: sources.map((url) => url.split("/").pop()),
    has_task_handle: TaskHandle !== "",
    tasks: (await sqs.listMessageMoveTasks({ SourceArn: deadLetterTargetArn })).Results.length,
    moved_back: back.Body,
  };
}

async function queues(QueueUrl) {
  saw.pages = [];
  for await (const page of paginateListQueues({ client: sqs, pageSize: 2 }, { QueueNamePrefix: PREFIX })) {
    saw.pages.push((page.QueueUrls ?? []).map((url) => url.split("/").pop()));
  }
  await sqs.tagQueue({ QueueUrl, Tags: { team: "data", cost: "ä" } });
  await sqs.untagQueue({ QueueUrl, TagKeys: ["team"] });
  saw.tags = (await sqs.listQueueTags({ QueueUrl })).Tags;
  saw.of_environment = (await new SQS().getQueueUrl({ QueueName: `${PREFIX}standard` })).QueueUrl;
  await sqs.deleteQueue({ QueueUrl });
  await failing("deleted_queue", sqs, "sendMessage", { QueueUrl, MessageBody: "late" });
}

const url = await made("standard", { VisibilityTimeout: "30" });
saw.queue_url = url;
await oneMessage(url);
await batches(url);
await errors(url);
await fifo();
await deadLetters();
await queues(url);
console.log(JSON.stringify(saw));
